// Package h2 sends many small requests over few HTTP/2 connections. A Pool
// takes requests over from its callers, queues them in bounded lanes, spreads
// them over its connections and gives each back exactly once, with an answer
// or with how sure it is that there is none.
//
// It knows requests, answers and connections, and nothing of Apple or Google.
package h2
