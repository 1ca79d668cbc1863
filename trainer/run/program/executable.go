package program

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"strings"
)

// firstLineMost is the number of bytes of a program that Linux reads to find its interpreter.
const firstLineMost = 256

// checkExecutable returns why the kernel cannot execute a file that is there and executable, nil
// if it can as far as the file tells. The kernel's own words are "no such file or directory",
// even if the file that is missing is the interpreter. Name is the file as the user has named it.
func checkExecutable(name, path string) error {
	file, err := os.Open(path)
	if err != nil {
		// it can be executed without being readable
		return nil
	}
	defer file.Close()
	begin := make([]byte, firstLineMost)
	n, err := io.ReadFull(file, begin)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return nil
	}
	begin = begin[:n]
	switch {
	case bytes.HasPrefix(begin, []byte("#!")):
		return checkInterpreter(name, begin)
	case bytes.HasPrefix(begin, []byte("\ufeff#!")):
		return fmt.Errorf("program %s: a byte order mark precedes #! in its first line: remove it: "+
			"sed -i '1s/^\\xEF\\xBB\\xBF//' %[1]s", name)
	case bytes.HasPrefix(begin, []byte(elf.ELFMAG)):
		return checkLoader(name, file)
	case bytes.IndexByte(begin, 0) < 0: // text
		return fmt.Errorf("program %s: it has no interpreter line: expected #! and the interpreter "+
			"in its first line, such as #!/bin/sh; or name the interpreter: sh %[1]s", name)
	}
	return nil
}

// checkInterpreter checks the first line of a script.
func checkInterpreter(name string, begin []byte) error {
	line, _, whole := strings.Cut(string(begin), "\n")
	if strings.HasSuffix(line, "\r") {
		return fmt.Errorf("program %s: its first line ends with CRLF, so that the interpreter %q is "+
			"looked for: expected lines that end with LF: sed -i 's/\\r$//' %[1]s",
			name, strings.TrimSpace(strings.TrimRight(line[2:], "\r"))+"\r")
	}
	words := strings.Fields(line[2:])
	if len(words) == 0 {
		return fmt.Errorf("program %s: no interpreter follows #! in its first line: expected one, "+
			"such as #!/bin/sh", name)
	}
	if !whole && len(words) == 1 && len(begin) == firstLineMost {
		return fmt.Errorf("program %s: the interpreter in its first line is longer than %d bytes, "+
			"which is the kernel's limit: name it: -- INTERPRETER %[1]s", name, firstLineMost-2)
	}
	if _, err := os.Stat(words[0]); os.IsNotExist(err) {
		return fmt.Errorf("program %s: its interpreter %s, in its first line, does not exist: "+
			"install it, or name another: -- INTERPRETER %[1]s", name, words[0])
	}
	return nil
}

// checkLoader checks that the dynamic loader of a binary exists, which it does not for one of
// another C library.
func checkLoader(name string, file *os.File) error {
	binary, err := elf.NewFile(file)
	if err != nil {
		return nil // the kernel says more
	}
	defer binary.Close()
	for _, segment := range binary.Progs {
		if segment.Type != elf.PT_INTERP || segment.Filesz > 4096 {
			continue
		}
		text, err := io.ReadAll(segment.Open())
		loader := string(bytes.TrimRight(text, "\x00"))
		if _, missing := os.Stat(loader); err == nil && os.IsNotExist(missing) {
			return fmt.Errorf("program %s: its loader %s does not exist: the program is made for "+
				"another C library or processor than this machine has", name, loader)
		}
	}
	return nil
}
