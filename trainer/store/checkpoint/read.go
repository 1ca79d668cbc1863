package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/safetensors"
)

// ErrNone is returned where there is no commit.
var ErrNone = errors.New("there is no checkpoint")

// ErrDamaged is returned for a commit whose bytes differ from the written ones or are missing.
// Other errors may pass: the storage cannot be read now.
var ErrDamaged = errors.New("the checkpoint is damaged")

// damage is an error that is ErrDamaged, and says what is wrong.
type damage struct{ error }

func (damage) Is(target error) bool { return target == ErrDamaged }
func (d damage) Unwrap() error      { return d.error }

func damaged(format string, args ...any) error { return damage{fmt.Errorf(format, args...)} }

// lasting makes damage of an error that does not pass: a file stands where a directory is expected
// or the other way round, or this user may not read it.
func lasting(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errNoFile) ||
		errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ELOOP) {
		return damage{err}
	}
	return err
}

// ReadCommit reads the record of a commit. It looks at no shard.
func (d Dir) ReadCommit(n Name) (*Commit, error) {
	path := d.Path(n, recordFile)
	f, size, closer, err := d.Open(n.String() + "/" + recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged("read checkpoint: %s is not there", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", lasting(err))
	}
	defer closer.Close()
	const most = 1 << 30
	if size > most {
		return nil, damaged("read checkpoint: %s has %d bytes", path, size)
	}
	record := make([]byte, size)
	if n, err := f.ReadAt(record, 0); int64(n) < size {
		return nil, fmt.Errorf("read checkpoint: %s: %w", path, err)
	}
	c, err := Decode(record)
	if err == nil && c.Name() != n {
		err = fmt.Errorf("it is of commit %d, %v", c.Number, c.Name())
	}
	if err != nil {
		return nil, damaged("read checkpoint: %s: %w", path, err)
	}
	return c, nil
}

// ReadNamed reads the record of the commit that has that checksum. A record of that name with
// another checksum is damaged.
func (d Dir) ReadNamed(n Name, checksum string) (*Commit, error) {
	c, err := d.ReadCommit(n)
	if err == nil && c.Checksum != checksum {
		err = damaged("read checkpoint: %s: it is not the commit that is meant: its checksum is %s, "+
			"expected %q; it is of job %s (%s)",
			d.Path(n, recordFile), c.Checksum, checksum, c.JobName, c.Job)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ReadFitting reads the record of the commit that has that checksum for a model with that layout,
// nil if it is not known yet, and an optimizer. The error of one that is of another model is
// [ErrDamaged], too: it is of no use.
func (d Dir) ReadFitting(n Name, checksum string, layout param.Layout, optimizer string) (*Commit, error) {
	c, err := d.ReadNamed(n, checksum)
	if err != nil {
		return nil, err
	}
	if layout != nil {
		if err := layout.Match(c.ParamLayout()); err != nil {
			return nil, damaged("read checkpoint: %s: it is of another model: %w", d.Path(n, recordFile), err)
		}
	}
	if c.Optimizer != optimizer {
		return nil, damaged("read checkpoint: %s: it is of a training with %s, and the model has %s",
			d.Path(n, recordFile), c.Optimizer, optimizer)
	}
	return c, nil
}

// Damage is a commit that cannot be used, and why.
type Damage struct {
	Commit Name
	Err    error
}

// Newest returns the newest commit that is whole, every byte of it, and what is wrong with those
// that are newer. [ErrNone]: there is none. Storage that cannot be read is another error.
func (d Dir) Newest() (*Commit, []Damage, error) {
	return d.newest(func(Name) bool { return true }, d.Verify)
}

// Before returns the newest commit that is older than another and whose record is whole, as
// [Dir.Newest] does. It looks at no shard.
func (d Dir) Before(n Name) (*Commit, []Damage, error) {
	return d.newest(func(o Name) bool { return newer(n, o) < 0 }, func(*Commit) error { return nil })
}

func (d Dir) newest(of func(Name) bool, verify func(*Commit) error) (*Commit, []Damage, error) {
	all, err := d.Commits()
	if err != nil {
		return nil, nil, err
	}
	var damaged []Damage
	for _, e := range all {
		if !e.Complete && e.Err == nil || !of(e.Name) {
			continue
		}
		c, err := (*Commit)(nil), e.Err
		if err == nil {
			c, err = d.ReadCommit(e.Name)
		}
		if err == nil {
			err = verify(c)
		}
		if err == nil {
			return c, damaged, nil
		}
		if !errors.Is(err, ErrDamaged) {
			return nil, damaged, err
		}
		damaged = append(damaged, Damage{e.Name, err})
	}
	return nil, damaged, fmt.Errorf("%w in %v", ErrNone, d)
}

// Verify reads all shards of a commit, and says what is wrong with them.
func (d Dir) Verify(c *Commit) error {
	var problems []error
	for _, s := range c.Shards {
		if err := d.read(c, s, Part{}); err != nil {
			problems = append(problems, fmt.Errorf("read checkpoint: %s: %w", d.Path(c.Name(), s.File), err))
		}
	}
	return errors.Join(problems...)
}

// Restore fills a part of the model, of any range, from the shards of a commit, each of which it
// reads and verifies in one go: after an error nothing of the part is of use. Slots of p that the
// commit has not are an error; p has none where only the values are wanted.
func (d Dir) Restore(c *Commit, p Part) error {
	if len(p.Slots) > c.Slots {
		return damaged("read checkpoint: commit %d has %d slots (%s), expected %d", c.Number, c.Slots,
			c.Optimizer, len(p.Slots))
	}
	end := p.Start + len(p.Values)
	if layout := c.ParamLayout(); p.Start < 0 || end > layout.Len() {
		return fmt.Errorf("read checkpoint: elements [%d, %d) of commit %d, which has %d", p.Start, end,
			c.Number, layout.Len())
	}
	for _, s := range c.Shards {
		if max(s.Start, p.Start) >= min(s.End, end) {
			continue
		}
		if err := d.read(c, s, p); err != nil {
			return fmt.Errorf("read checkpoint: %s: %w", d.Path(c.Name(), s.File), err)
		}
	}
	return nil
}

// read reads every byte of a shard, and fills those elements of p that are in it, if there are any.
func (d Dir) read(c *Commit, s Shard, p Part) error {
	f, size, closer, err := d.Open(c.Name().String() + "/" + s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return damaged("it is not there")
	}
	if err != nil {
		return lasting(err)
	}
	defer closer.Close()
	if size != s.Bytes {
		return damaged("it has %d bytes, expected %d", size, s.Bytes)
	}
	// of a header that is damaged: the checksum tells
	wanted, problem := sections(f, size, s, p)
	crc, err := pass(f, size, wanted)
	if err != nil {
		return err
	}
	if is := checksum(crc); is != s.CRC {
		return damaged("its checksum is %s, expected %s", is, s.CRC)
	}
	return problem
}

// sections returns where in a shard's file the elements of p lie that are in it.
func sections(f io.ReaderAt, size int64, s Shard, p Part) ([]section, error) {
	from, end := max(s.Start, p.Start), min(s.End, p.Start+len(p.Values))
	if from >= end {
		return nil, nil
	}
	file, err := safetensors.Open(f, size)
	if err != nil {
		return nil, err
	}
	var wanted []section
	want := func(tensor string, of []float32) error {
		to := min(end, p.Start+len(of)) // only trainable elements have slots
		if from >= to {
			return nil
		}
		at, err := file.Offset(tensor, from-s.Start, to-from)
		wanted = append(wanted, section{at, of[from-p.Start : to-p.Start]})
		return err
	}
	err = want(valuesName, p.Values)
	for i := 0; i < len(p.Slots) && err == nil; i++ {
		err = want(slotName(i), p.Slots[i])
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(wanted, func(a, b section) int { return cmp.Compare(a.at, b.at) })
	return wanted, nil
}
