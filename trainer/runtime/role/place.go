package role

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/prediction"
	"github.com/elasticdl/elasticdl/trainer/train/data"
)

// WritableOutputs checks that predictions can be written to a file or directory, without writing
// anything. It returns why not, or nil.
func WritableOutputs(outputs string) error {
	if info, err := os.Stat(outputs); err == nil && info.IsDir() != (prediction.Dir(outputs) == outputs) {
		if info.IsDir() {
			return errors.New("it is a directory; expected a name for a file, or one without .csv")
		}
		return errors.New("it is a file; expected a name that ends in .csv, or a directory")
	}
	return Writable(prediction.Dir(outputs))
}

// Writable checks that a directory can be written to or made, or that a bucket can be listed,
// without writing anything. It returns why not, or nil.
func Writable(dir string) error {
	if strings.Contains(dir, "://") {
		f, err := bucket.Open(context.Background(), dir)
		if err == nil {
			_, err = f.List("")
		}
		return err
	}
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

// Buckets returns a function that opens training data in buckets. All reading ends with ctx.
func Buckets(ctx context.Context) data.Buckets {
	return func(location string) (data.Place, string, error) {
		place, only, err := bucket.OpenData(ctx, location)
		if err != nil {
			return nil, "", err
		}
		return place, only, nil
	}
}
