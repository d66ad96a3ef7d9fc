// Package channel proves how a channel is added: its test carries out DESIGN.md's
// page, with the provider in beep, and takes the fleet with three platforms
// through everything. It has nothing but tests.
package channel
