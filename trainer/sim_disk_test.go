package trainer_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// disk is the storage of a job's checkpoints, which all pods see, and which goes wrong.
type disk struct {
	pace    time.Duration // what a write or a read takes
	network *network

	mu     sync.Mutex
	random *rand.Rand
	files  map[string][]byte
	full   time.Time // until then nothing is written
	sick   time.Time // until then it fails now and then
	rotten bool      // a byte of a file was changed
	others []string  // files of others, which stay
}

func newDisk(seed uint64, n *network) *disk {
	r := rand.New(rand.NewPCG(seed, 5))
	return &disk{network: n, random: r, files: make(map[string][]byte),
		pace: []time.Duration{0, 5 * time.Millisecond, 300 * time.Millisecond}[r.IntN(3)]}
}

// open opens the directory of checkpoints from a host, or another, which is one of this machine.
// Writes of a dead host are lost.
func (d *disk) open(h *host) func(dir string) (checkpoint.Dir, error) {
	return func(dir string) (checkpoint.Dir, error) {
		if dir != checkpointDir {
			return checkpoint.Dir{Files: checkpoint.Local(dir)}, nil
		}
		return checkpoint.Dir{Files: mount{d, h, dir}}, nil
	}
}

// mount is the disk as a host sees it.
type mount struct {
	disk *disk
	host *host
	dir  string
}

func (m mount) String() string { return m.dir }

// works takes the time of an operation, and says whether it can be.
func (m mount) works() error {
	time.Sleep(m.disk.pace)
	dead := m.dead()
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	switch {
	case dead:
		return errors.New("the process is killed")
	case time.Now().Before(m.disk.sick) && m.disk.random.IntN(3) == 0:
		return syscall.EIO
	}
	return nil
}

// dead reports whether the host is.
func (m mount) dead() bool { return m.host != nil && m.disk.network.isDead(m.host) }

func (m mount) Create(name string) (checkpoint.Writer, error) { return m.create(name, false) }

func (m mount) CreateNew(name string) (checkpoint.Writer, error) { return m.create(name, true) }

func (m mount) create(name string, exclusive bool) (checkpoint.Writer, error) {
	if err := m.works(); err != nil {
		return nil, err
	}
	f := &draft{mount: m, name: m.dir + "/" + name, exclusive: exclusive}
	f.temporary = fmt.Sprintf("%s.%p", f.name, f)
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	m.disk.files[f.temporary] = nil
	return f, nil
}

func (m mount) Open(name string) (io.ReaderAt, int64, io.Closer, error) {
	if err := m.works(); err != nil {
		return nil, 0, nil, err
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	b, ok := m.disk.files[m.dir+"/"+name]
	if !ok {
		return nil, 0, nil, fs.ErrNotExist
	}
	return bytes.NewReader(b), int64(len(b)), io.NopCloser(nil), nil
}

func (m mount) List(dir string) ([]string, error) {
	if err := m.works(); err != nil {
		return nil, err
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	prefix := strings.TrimSuffix(m.dir+"/"+dir, "/") + "/"
	if _, isFile := m.disk.files[strings.TrimSuffix(prefix, "/")]; isFile {
		return nil, syscall.ENOTDIR
	}
	names := make(map[string]bool)
	for name := range m.disk.files {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			first, _, _ := strings.Cut(rest, "/")
			names[first] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

func (m mount) Remove(name string) error {
	if err := m.works(); err != nil {
		return err
	}
	m.disk.mu.Lock()
	defer m.disk.mu.Unlock()
	path := m.dir + "/" + name
	maps.DeleteFunc(m.disk.files, func(name string, _ []byte) bool {
		return name == path || strings.HasPrefix(name, path+"/")
	})
	return nil
}

// draft is a file that is being written.
type draft struct {
	mount
	name, temporary string
	// it appears only if there is none of its name
	exclusive bool
	done      bool
}

func (f *draft) Write(b []byte) (int, error) {
	if err := f.works(); err != nil {
		return 0, err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(b)
	if time.Now().Before(d.full) {
		n /= 2
	}
	d.files[f.temporary] = append(d.files[f.temporary], b[:n]...)
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (f *draft) Commit() error {
	if err := f.works(); err != nil {
		return err
	}
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, taken := d.files[f.name]; taken && f.exclusive {
		delete(d.files, f.temporary)
		return fs.ErrExist
	}
	d.files[f.name] = d.files[f.temporary]
	delete(d.files, f.temporary)
	f.done = true
	return nil
}

func (f *draft) Abort() {
	dead := f.dead()
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if !dead {
		delete(f.disk.files, f.temporary)
	}
}

// rot changes a bit of a file of the newest checkpoint. False: there is none.
func (d *disk) rot() (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := slices.Sorted(maps.Keys(d.files))
	names = slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasSuffix(name, ".safetensors") && !strings.HasSuffix(name, ".json")
	})
	if len(names) == 0 {
		return "", false
	}
	last := names[len(names)-1]
	dir := last[:strings.LastIndex(last, "/")]
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, dir) })
	name := names[d.random.IntN(len(names))]
	b := slices.Clone(d.files[name])
	if len(b) == 0 {
		return "", false
	}
	b[d.random.IntN(len(b))] ^= 1 << d.random.IntN(8)
	d.files[name], d.rotten = b, true
	return name, true
}

// commit returns the record of one of the job's commits that are complete, nil if there is none.
func (d *disk) commit() *checkpoint.Commit {
	dir := checkpoint.Dir{Files: mount{d.still(), nil, checkpointDir}}
	all, _ := dir.Commits()
	for _, e := range all {
		if c, err := dir.ReadCommit(e.Name); err == nil && c.JobName == simulated {
			return c
		}
	}
	return nil
}

// share has another job that uses the directory, too, write a commit next to the newest one of the
// job: of the same data and the same model, with another state. Its claim has the same number, as
// if both had claimed at once where that cannot be refused. None of its files may be removed.
func (d *disk) share(ahead int64) (string, bool) {
	c := d.commit()
	if c == nil {
		return "", false
	}
	number, _, _ := strings.Cut(c.Claim, "-")
	n, _ := strconv.ParseInt(number, 10, 64)
	c.Job, c.JobName, c.Number = "stranger", "stranger", c.Number+ahead
	c.Claim = checkpoint.Claim{Number: n, Owner: checkpoint.Owner{Job: c.Job}}.Tag()
	c.Ledger = ledger.Ledger{}
	c.Ledger.Settle(1)
	shelf := &disk{files: make(map[string][]byte)}
	dir := checkpoint.Dir{Files: mount{shelf, nil, checkpointDir}}
	s, err := checkpoint.WriteShard(dir, c.Name(), checkpoint.ShardFile(0, 1), checkpoint.Part{
		Values: make([]float32, c.ParamLayout().Len()),
		Slots:  [][]float32{make([]float32, c.ParamLayout().Trainable())},
	})
	if c.Shards = []checkpoint.Shard{s}; err == nil {
		err = dir.WriteCommit(*c)
	}
	if err != nil {
		panic(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.Copy(d.files, shelf.files)
	d.others = append(d.others, slices.Collect(maps.Keys(shelf.files))...)
	return c.Name().String(), true
}

// litter puts something in the directory that is no commit.
func (d *disk) litter() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := []string{"commit-00009999", "commit-9999", "commit-00000001-1-0123456", "lost+found/x",
		"owner-", ".DS_Store"}[d.random.IntN(6)]
	d.files[checkpointDir+"/"+name] = []byte("x")
	d.others = append(d.others, checkpointDir+"/"+name)
	return name
}

// replace has another commit take the place of one of the job's, under its name: damage, whatever
// its own checksums say.
func (d *disk) replace() (string, bool) {
	c := d.commit()
	if c == nil {
		return "", false
	}
	c.Evaluated++
	record, err := c.Encode()
	if err != nil {
		panic(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[checkpointDir+"/"+c.Name().String()+"/commit.json"], d.rotten = record, true
	return c.Name().String(), true
}

// isRotten reports whether a bit was changed.
func (d *disk) isRotten() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rotten
}

// own is the directory as the job has it that has claimed it last, when nothing goes wrong.
func (d *disk) own() checkpoint.Dir {
	dir := checkpoint.Dir{Files: mount{d.still(), nil, checkpointDir}}
	names, _ := dir.List("")
	claim := checkpoint.Claim{Owner: checkpoint.Owner{Job: "uid"}}
	for _, name := range names {
		if n, err := strconv.ParseInt(strings.TrimPrefix(name, "owner-"), 10, 64); err == nil &&
			strings.HasPrefix(name, "owner-") {
			claim.Number = max(claim.Number, n)
		}
	}
	return dir.Under(claim)
}

// still is a disk with the same files, on which nothing goes wrong or takes time.
func (d *disk) still() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &disk{files: maps.Clone(d.files)}
}

// troubles holds the faults of the storage of checkpoints.
var troubles = []fault{
	{name: "disk full", rare: 3, do: func(s *simulation) string {
		d := s.any(time.Second, 30*time.Second)
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		s.disk.full = time.Now().Add(d)
		return fmt.Sprintf("the disk is full for %v", d)
	}},
	{name: "disk sick", rare: 3, do: func(s *simulation) string {
		d := s.any(100*time.Millisecond, 30*time.Second)
		s.disk.mu.Lock()
		defer s.disk.mu.Unlock()
		s.disk.sick = time.Now().Add(d)
		return fmt.Sprintf("the disk fails now and then for %v", d)
	}},
	{name: "directory shared", rare: 3, do: func(s *simulation) string {
		name, ok := s.disk.share(s.random.Int64N(4))
		return said(ok, "another job has written %s", name)
	}},
	{name: "directory littered", rare: 4, do: func(s *simulation) string {
		return fmt.Sprintf("%s is in the directory", s.disk.litter())
	}},
	{name: "commit replaced", rare: 6, do: func(s *simulation) string {
		name, ok := s.disk.replace()
		return said(ok, "%s is another", name)
	}},
	{name: "disk rots", rare: 6, do: func(s *simulation) string {
		name, ok := s.disk.rot()
		return said(ok, "a bit of %s is another", name)
	}},
}

const (
	checkpointDir = "ckpt"
	simulated     = "sim" // name of the job
)

// drawCheckpoints draws whether the job has checkpoints, how often, and how many are kept.
func (s *simulation) drawCheckpoints(seed uint64) {
	s.disk = newDisk(seed, s.network)
	r := rand.New(rand.NewPCG(seed, 6))
	if r.IntN(4) == 0 {
		return
	}
	j := s.job
	j.CheckpointDir, j.KeepCheckpointMax = checkpointDir, r.IntN(4)
	if r.IntN(2) == 0 {
		j.CheckpointSteps = 1 + r.IntN(20)
	} else {
		j.CheckpointInterval.Duration = time.Duration(200+r.IntN(5000)) * time.Millisecond
	}
	if s.stopped = 0; !s.calm && !s.gentle && r.IntN(4) == 0 {
		s.stopped = time.Duration(500+r.IntN(20_000)) * time.Millisecond
	}
	if !s.calm && !s.gentle {
		for _, f := range troubles {
			// a job that has nothing to continue from fails
			if r.IntN(2) == 0 && (s.stopped == 0 || f.name != "disk rots" && f.name != "commit replaced") {
				s.faults = append(s.faults, f)
			}
		}
	}
}

// shelf is the checkpoints that a job can return to, as its events tell. The simulation's mutex
// guards it.
type shelf struct {
	kept []master.CheckpointWritten
	// older ones, which are to be removed: the disk may fail, and keep them
	removed []master.CheckpointWritten
	// version that the newest model began with
	base int64
	// one was found to be, since the last generation began
	damaged bool
}

// shelve takes an event.
func (s *simulation) shelve(e master.Event) {
	switch e := e.(type) {
	case master.CheckpointWritten:
		if n := len(s.kept); n > 0 && (e.Number <= s.kept[n-1].Number || e.Records < s.kept[n-1].Records) {
			s.complain("checkpoint %+v is written after %+v", e, s.kept[n-1])
		}
		s.look(e)
		s.kept = append(s.kept, e)
		if most := s.job.KeepCheckpointMax; most > 0 {
			most = max(0, len(s.kept)-most)
			s.removed, s.kept = append(s.removed, s.kept[:most]...), s.kept[most:]
		}
	case master.CheckpointDamaged:
		if !s.disk.isRotten() {
			s.complain("checkpoint %d is damaged, and nobody has changed it: %s", e.Number, e.Reason)
		}
		s.damaged = true
		newer := func(k master.CheckpointWritten) bool { return k.Number >= e.Number }
		s.kept, s.removed = slices.DeleteFunc(s.kept, newer), slices.DeleteFunc(s.removed, newer)
	case master.Resumed:
		s.find(e)
		if n := len(s.kept); n == 0 || s.kept[n-1] != writtenOf(e) {
			s.complain("the job is resumed with %+v of %v", e, s.kept)
		}
		s.base, s.epochs, s.back = e.Version, int(e.Records/s.training.total), true
	case master.TrainingRestarted:
		if len(s.kept) > 0 {
			s.complain("the training starts over (%s), and there is checkpoint %+v", e.Reason, s.kept[len(s.kept)-1])
		}
		s.base, s.damaged = 0, false
	case master.RolledBack:
		s.find(master.Resumed{Number: e.Checkpoint, Version: e.Version, Records: e.Kept})
		if n := len(s.kept); n == 0 ||
			s.kept[n-1] != (master.CheckpointWritten{Number: e.Checkpoint, Version: e.Version, Records: e.Kept}) {
			s.complain("the training returns to %+v of %v", e, s.kept)
		}
		s.base, s.damaged = e.Version, false
	}
}

// writtenOf returns the checkpoint from which a job is resumed.
func writtenOf(e master.Resumed) master.CheckpointWritten {
	return master.CheckpointWritten{Number: e.Number, Version: e.Version, Records: e.Records}
}

// find takes a checkpoint that a master before has written, which was not heard any more, and
// forgets newer ones that the present one does not know of. Where no other is left it may also be
// one that could not be removed.
func (s *simulation) find(e master.Resumed) {
	c := writtenOf(e)
	if len(s.kept) == 0 && slices.Contains(s.removed, c) {
		s.kept = []master.CheckpointWritten{c}
	}
	if s.lost == 0 {
		return
	}
	if i := slices.Index(s.kept, c); i >= 0 {
		return
	}
	s.look(c)
	s.kept = append(s.kept, c)
}

// checkShelf asserts that the model at rest is the trained one, with each record in it once.
func (s *simulation) checkShelf(t *testing.T) {
	if s.job.CheckpointDir == "" || s.disk.rotten {
		return
	}
	dir := s.disk.own()
	c, damaged, err := dir.Newest()
	for _, name := range s.disk.others {
		if _, ok := s.disk.files[name]; !ok {
			t.Errorf("%s of another job was removed", name)
		}
	}
	if err != nil || len(damaged) > 0 {
		t.Errorf("the newest checkpoint cannot be read: %v, %v", err, damaged)
		return
	}
	if c.Records != s.shape.records {
		t.Errorf("checkpoint %d has %d records of %d", c.Number, c.Records, s.shape.records)
	}
	all, err := dir.Commits()
	whole := 0
	for _, e := range all {
		if e.Complete {
			whole++
		}
	}
	// the disk may have failed to remove one, and each master may have died before it did
	if most := s.job.KeepCheckpointMax; err != nil || most > 0 && whole > most+1+s.lost {
		t.Errorf("%d checkpoints are there, want at most %d; %v", whole, most, err)
	}
	if s.stopped == 0 && s.job.Strategy == job.ParameterServer && len(c.Shards) != s.job.NumPS {
		t.Errorf("checkpoint %d has %d shards of %d servers", c.Number, len(c.Shards), s.job.NumPS)
	}
}

// readNumber reads the record of the commit with a number.
func readNumber(dir checkpoint.Dir, number int64) (*checkpoint.Commit, error) {
	n, err := dir.Find(number)
	if err != nil {
		return nil, err
	}
	return dir.ReadCommit(n)
}

// look complains unless a written checkpoint has, on every part, as many records as it says, each
// once and the same ones, with the optimizer's state of their steps.
func (s *simulation) look(e master.CheckpointWritten) {
	d := s.disk.still()
	if s.disk.isRotten() {
		return
	}
	dir := d.own()
	layout := s.shape.Layout()
	values, steps := make([]float32, layout.Len()), make([]float32, layout.Trainable())
	c, err := readNumber(dir, e.Number)
	if err == nil {
		err = dir.Restore(c, checkpoint.Part{Values: values, Slots: [][]float32{steps}})
	}
	if err != nil || c.Version != e.Version || c.Records != e.Records {
		s.complain("%+v cannot be read: %v", e, err)
		return
	}
	const least = 1e-12 // of the square of a gradient of a record
	var first []bool
	for part := range s.shape.parts {
		counts, kept := s.shape.counts(values, part), s.shape.counts(steps, part)
		has, records, again, forgotten := make([]bool, s.shape.records), int64(0), 0, 0
		for i, count := range counts {
			moved, record := count != start, i/s.shape.columns
			switch {
			case moved && (has[record] || count-start > 1.01*rate):
				again++
			case moved:
				has[record] = true
				records++
			}
			if moved != (kept[i] > least) {
				forgotten++
			}
		}
		if records != e.Records || again > 0 || forgotten > 0 {
			s.complain("part %d of %+v has %d records, %d more than once, and %d slots of other steps",
				part, e, records, again, forgotten)
		}
		if first == nil {
			first = has
		}
		if !slices.Equal(has, first) {
			s.complain("part %d of %+v has other records than part 0", part, e)
		}
	}
}
