// Package settings is the configuration of a stack: its fields, their defaults, and everything that
// may be wrong with it.
//
//	stacks/Pulumi.<stack>.yaml ──> engine ──> load ──> Input ──> Parse ──┐
//	       *Settings, with Notes, or every problem at once <───────────────┤
//	                                        others' checks: Check ────────┘
//
//	    decode     fields by their JSON names; others are problems               decode.go
//	    default    values of settings that a file leaves out                    default.go
//	    settle     values that follow from others                               default.go
//	    check      rules that types cannot express                              check.go, and others
//
// A field of a file is a field of a struct here, named by its JSON tag. A new field is added to its
// struct, to the check of its section and to the table of its page; tests check that they agree.
//
// The package is pure: it reads no file, clock or environment. [Input] has the time and a function
// that looks up files. It does not link Pulumi, so that its tests compile in seconds.
//
// # Laws
//
//  1. Every problem is reported, in the order of a stack's file, as "<project>:<path>: <found>:
//     expected <what>: <what to do>".
//  2. A path has at most one problem, and none is reported below it.
//  3. No configuration panics. What [Parse] returns survives JSON.
//  4. A valid setting that the user should know about is reported as a note, never as a problem.
package settings
