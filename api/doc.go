// Package api holds what users write and see: shares, workloads, queues, and the status of each; their text forms, defaults
// and validation. It is the one stable package: the HTTP API, the command line and the engine all speak these types.
//
// What comes in is text (flags, JSON); what goes out is a valid value or an error that points at the character. Nothing here
// decides, does I/O or knows the time.
package api
