package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Programs that the kernel refuses with "no such file or directory" or "exec format error" are
// refused before, with the cause.
func TestProgramThatCannotBeExecuted(t *testing.T) {
	loader := func() string { // a binary whose dynamic loader is missing
		text, err := os.ReadFile("/bin/sh")
		if err != nil || !strings.Contains(string(text), "/ld-linux") {
			return ""
		}
		return strings.Replace(string(text), "/ld-linux", "/ld-llnux", 1)
	}()
	for name, c := range map[string]struct{ text, want string }{
		"CRLF": {"#!/bin/sh\r\necho hello\r\n",
			`its first line ends with CRLF, so that the interpreter "/bin/sh\r" is looked for`},
		"CRLF and env":        {"#!/usr/bin/env python3\r\nprint()\r\n", "CRLF"},
		"no interpreter line": {"echo hello\n", "it has no interpreter line"},
		"empty":               {"", "it has no interpreter line"},
		"byte order mark":     {"\ufeff#!/bin/sh\necho hello\n", "a byte order mark precedes #!"},
		"no interpreter":      {"#! \necho hello\n", "no interpreter follows #!"},
		"missing interpreter": {"#!/no/such/python3 -u\nprint()\n",
			"its interpreter /no/such/python3, in its first line, does not exist"},
		"long interpreter":  {"#!/" + strings.Repeat("x", 300) + "\n", "longer than"},
		"missing loader":    {loader, "/ld-llnux"},
		"script":            {"#!/bin/sh\necho hello\n", ""},
		"script with space": {"#! /bin/sh -e", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "missing loader" && c.text == "" {
				t.Skip("/bin/sh has no loader of glibc")
			}
			path := filepath.Join(t.TempDir(), "entry.sh")
			if err := os.WriteFile(path, []byte(c.text), 0o700); err != nil {
				t.Fatal(err)
			}
			err := Options{Command: []string{path}}.Check()
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if err := exec.Command(path).Run(); err == nil && name != "no interpreter" {
				t.Error("the kernel executes it")
			}
		})
	}
}
