//go:build !linux

package checkpoint

import "os"

func prepare(b []byte) { touch(b) }

func readInOrder(*os.File) {}
