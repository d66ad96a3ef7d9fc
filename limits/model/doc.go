// Package model has the six algorithms of limits as they are explained on a
// whiteboard: they keep everything, count everything, and hash, pack and
// remember nothing. The tests of packages limits and senders hold the real
// ones against them.
package model
