package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Settings has values of kernel settings, by their sysctl names.
type Settings map[string]string

// ReadSettings returns the values of the given names that the machine has.
func ReadSettings(names ...string) (Settings, error) {
	s := Settings{}
	for _, name := range names {
		value, err := os.ReadFile(settingPath(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read setting %s: %w", name, err)
		}
		s[name] = strings.TrimSpace(string(value))
	}
	return s, nil
}

// Write sets the values that differ.
func (s Settings) Write() error {
	var errs []error
	for name, value := range s {
		now, err := ReadSettings(name)
		if err == nil && now[name] != value {
			err = os.WriteFile(settingPath(name), []byte(value), 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write setting %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func settingPath(name string) string {
	return "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
}
