package role

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Writable returns why a directory cannot be written to, or made. Nothing is written for that.
func Writable(dir string) error {
	for {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, os.ErrNotExist) && filepath.Dir(dir) != dir:
			dir = filepath.Dir(dir) // it will be made in there
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is not a directory", dir)
		}
		if err := unix.Access(dir, unix.W_OK); err != nil {
			return fmt.Errorf("write to %s: %w", dir, err)
		}
		return nil
	}
}
