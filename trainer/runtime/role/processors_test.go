package role

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// A container's processors are those of its limit, whatever the machine has.
func TestProcessors(t *testing.T) {
	all := runtime.GOMAXPROCS(8)
	defer runtime.GOMAXPROCS(all)
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  int
	}{
		{"no limit", nil, 8},
		{"none in v2", map[string]string{"cpu.max": "max 100000\n"}, 8},
		{"none in v1", map[string]string{"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8},
		{"two", map[string]string{"cpu.max": "200000 100000\n"}, 2},
		{"two in v1", map[string]string{"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2},
		{"a tenth", map[string]string{"cpu.max": "10000 100000\n"}, 1},
		{"nearly four", map[string]string{"cpu.max": "390000 100000\n"}, 4},
		{"more than there are", map[string]string{"cpu.max": "1600000 100000\n"}, 8},
		{"nonsense", map[string]string{"cpu.max": "0 0\n"}, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tt.files {
				path := filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
					os.WriteFile(path, []byte(text), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			if got := processors(root); got != tt.want {
				t.Errorf("%d, expected %d", got, tt.want)
			}
		})
	}
}
