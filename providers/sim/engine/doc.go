// Package engine is a server of HTTP/2, on the level of frames, and of
// HTTP/1.1. It moves requests and answers fast, and can be told to treat a
// connection badly: to go away, to fall silent, to read nothing.
//
// It knows no provider. What a request is answered, how many streams a
// connection has, and what is done to it, a Session decides; that is the seam.
// Start reading at session.go, and then conn.go.
//
// It imports nothing else of this project.
package engine
