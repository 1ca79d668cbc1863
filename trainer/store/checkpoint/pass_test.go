package checkpoint

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// One pass over a file yields all wanted parts, in any place, and the checksum of all bytes.
func TestPass(t *testing.T) {
	file := make([]byte, 3*block+17)
	for i := range file {
		file[i] = byte(i * 7 / 5)
	}
	for name, wanted := range map[string][]section{
		"nothing":         nil,
		"the first bytes": {{0, make([]float32, 5)}},
		"the last bytes":  {{int64(len(file) - 8), make([]float32, 2)}},
		"one after another": {{13, make([]float32, 100)}, {413, make([]float32, block/4+3)},
			{3 * block, make([]float32, 4)}},
		"all of it":    {{0, make([]float32, len(file)/4)}},
		"none of some": {{5, nil}, {5, make([]float32, 1)}},
	} {
		crc, err := pass(bytes.NewReader(file), int64(len(file)), wanted)
		if err != nil || crc != crc32.Checksum(file, castagnoli) {
			t.Errorf("%s: %08x: %v", name, crc, err)
		}
		for _, s := range wanted {
			if want := file[s.at:][:4*len(s.into)]; !bytes.Equal(param.Encoded(s.into), want) {
				t.Errorf("%s: at %d is something else", name, s.at)
			}
		}
	}
	if crc, err := pass(bytes.NewReader(nil), 0, nil); crc != 0 || err != nil {
		t.Errorf("of nothing: %08x: %v", crc, err)
	}
}

// failing cannot be read from some byte on.
type failing struct {
	io.ReaderAt
	from int64
}

func (f failing) ReadAt(b []byte, at int64) (int, error) {
	if at+int64(len(b)) > f.from {
		return 0, errDisk
	}
	return f.ReaderAt.ReadAt(b, at)
}

var errDisk = errors.New("input/output error")

// A pass over a disk that fails ends with its error, wherever that is, and whatever is wanted.
func TestPassOverBadDisk(t *testing.T) {
	const size = 9 * block
	for from := range int64(10) {
		for _, wanted := range [][]section{nil, {{block / 2, make([]float32, block)}}} {
			var crc uint32
			var err error
			synctest.Test(t, func(*testing.T) { // which sees that nobody is left behind
				crc, err = pass(failing{bytes.NewReader(make([]byte, size)), from * block}, size, slices.Clone(wanted))
			})
			if from < 9 && (!errors.Is(err, errDisk) || !strings.Contains(err.Error(), "read ")) ||
				from == 9 && err != nil {
				t.Errorf("from block %d on: %08x, %v", from, crc, err)
			}
		}
	}
}
