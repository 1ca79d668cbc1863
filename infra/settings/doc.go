// Package settings is the configuration of a stack: its fields, their defaults, and everything that may be wrong with it.
//
//	stacks/Pulumi.<stack>.yaml ──> engine ──> infra.Load ──> Input ──> Parse ──┬──> *Settings, with Notes
//	                                             others' checks: Check ────────┘    or every problem at once
//
//	    decode     fields by their JSON names; what no field has is a problem    decode.go
//	    default    what a file need not say                                     default.go
//	    settle     what follows from what the file says                         default.go
//	    check      what types do not say                                        check.go, and a file for each section
//
// A field of a file is a field of a struct here, named by its JSON tag. A new one is added to its struct, to the check of its
// section and to the table of its page; tests hold them together.
//
// The package is pure: it reads no file, clock or environment. [Input] has the time and a function that looks for files. It
// does not link Pulumi, so that its tests are compiled in seconds.
//
// # Laws
//
//  1. Every problem is reported, in the order of a stack's file, as "<project>:<path>: <found>: expected <what>: <what to do>".
//  2. A path has one problem, and what is below it none.
//  3. No configuration panics. What [Parse] returns survives JSON.
//  4. What is valid and should be known all the same is a note, never a problem: the settings work.
package settings
