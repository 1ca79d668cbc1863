package stacks

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Point is the place at which a rank stands.
type Point struct {
	// Doing is the function of a library that the user's code has called, or the system call in
	// which it waits, or "running".
	Doing string
	// File is the path of the user's file; "": no frame is of a file.
	File string
	Line int
}

// String shows the point: "all_reduce at train.py:41".
func (p Point) String() string {
	switch {
	case p.File == "":
		return p.Doing
	case p.Line == 0:
		return p.Doing + " at " + p.File
	}
	return fmt.Sprintf("%s at %s:%d", p.Doing, p.File, p.Line)
}

// boots matches the files by which an interpreter starts a program, or imports a module.
var boots = regexp.MustCompile(`^<(frozen|elasticdl) |^<string>$|/runpy\.py$|/boot/sitecustomize\.py$`)

// libraries matches the files of Python, of installed packages and of this system's package.
var libraries = regexp.MustCompile(
	`/(lib|lib64)/python\d|/(site|dist)-packages/|/python\d+\.zip/|/python/(elasticdl|elasticai_api)/|^<|^\?\?\?$`)

// wrappers are names of functions that only call another.
var wrappers = []string{"wrapper", "wrapped", "inner", "decorate_context", "_wrapped_call_impl", "_call_impl",
	"__call__", "_fn", "<lambda>", "__torch_function__", "handle_torch_function"}

// program returns the frames without those by which the interpreter starts the program.
func program(frames []Frame) []Frame {
	end := len(frames)
	for end > 0 && boots.MatchString(frames[end-1].File) {
		end--
	}
	return slices.DeleteFunc(slices.Clone(frames[:end]), func(f Frame) bool {
		return strings.HasPrefix(f.File, "<frozen importlib")
	})
}

// telling returns where a thread stands: at the innermost line of the user's code. There must be a
// frame. Call is the system call in which it waits, "" if it runs.
func telling(frames []Frame, call string) Point {
	waits := call
	if waits == "" {
		waits = "running"
	}
	user := slices.IndexFunc(frames, func(f Frame) bool { return !libraries.MatchString(f.File) })
	if user < 0 { // a module of Python's that is the program
		return Point{Doing: waits, File: frames[0].File, Line: frames[0].Line}
	}
	p := Point{Doing: waits, File: frames[user].File, Line: frames[user].Line}
	inner := frames[:user]
	for _, f := range slices.Backward(inner) {
		if !slices.Contains(wrappers, f.Function) {
			p.Doing = f.Function
			return p
		}
	}
	if len(inner) > 0 {
		p.Doing = inner[0].Function
	}
	return p
}

// collectives matches the functions in which a rank waits for others.
var collectives = regexp.MustCompile(`^(all_|allreduce|barrier|broadcast|reduce|gather|scatter|monitored_barrier|` +
	`recv|irecv|send|isend|batch_isend_irecv|wait|synchronize|backward|init_process_group|rendezvous|new_group|` +
	`_all_|_reduce_|_broadcast|_sync_)`)

// collective reports whether a rank that stands there waits for other ranks.
func (p Point) collective() bool { return collectives.MatchString(p.Doing) }

// debuggers matches the files of debuggers that run in the process.
var debuggers = regexp.MustCompile(
	`/(bdb|pdb)\.py$|/(pydevd|debugpy|_pydevd_bundle|pudb|ipdb)/|/IPython/core/debugger\.py$`)

// debugged reports whether a debugger that runs in the process has one of the calls.
func debugged(frames []Frame) bool {
	return slices.ContainsFunc(frames, func(f Frame) bool { return debuggers.MatchString(f.File) })
}

// short returns for each path the shortest end that no other path has.
func short(paths []string) map[string]string {
	ends := make(map[string]string)
	todo := slices.Compact(slices.Sorted(slices.Values(paths)))
	for parts := 1; len(todo) > 0; parts++ {
		uses := make(map[string]int)
		for _, p := range todo {
			uses[end(p, parts)]++
		}
		todo = slices.DeleteFunc(todo, func(p string) bool {
			e := end(p, parts)
			if uses[e] > 1 && e != p {
				return false
			}
			ends[p] = e
			return true
		})
	}
	return ends
}

// end returns the last parts of a path, or all of it.
func end(p string, parts int) string {
	at := len(p)
	for range parts {
		at = strings.LastIndexByte(p[:at], '/')
		if at < 0 {
			return p
		}
	}
	return strings.TrimPrefix(p[at:], "/")
}

// clean returns a path without ".." and the like, so that one file has one name.
func clean(p string) string {
	if p == "" || p[0] == '<' {
		return p
	}
	return path.Clean(p)
}
