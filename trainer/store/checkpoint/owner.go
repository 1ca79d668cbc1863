package checkpoint

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// claimFormat is the version of the record of a claim.
const claimFormat = 1

// Names of the records of claims, and of the files that end them.
const (
	claimPrefix  = "owner-"
	releasedMark = ".released"
)

// claimTries limits the attempts to claim while others claim at the same time.
const claimTries = 20

// claimFile names the record of a claim.
func claimFile(number int64) string { return fmt.Sprintf("%s%08d", claimPrefix, number) }

// parseClaim is the inverse of claimFile; released: the name is that of the file that ends the
// claim.
func parseClaim(name string) (number int64, released, ok bool) {
	plain, released := strings.CutSuffix(name, releasedMark)
	digits, ok := strings.CutPrefix(plain, claimPrefix)
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n <= 0 || claimFile(n) != plain {
		return 0, false, false
	}
	return n, released, true
}

// lastClaim is the last claim of a directory.
type lastClaim struct {
	// 0: there is none
	number int64
	// nil: there is none, or its record cannot be read
	claim    *Claim
	released bool
	// permanent error of reading the record; nil: it can be read
	damage error
}

// lastClaim reads the last claim of the directory.
func (d Dir) lastClaim() (l lastClaim, err error) {
	names, err := d.List("")
	if err != nil {
		return l, fmt.Errorf("read the owner of %v: %w", d, err)
	}
	ended := make(map[int64]bool)
	for _, name := range names {
		n, released, ok := parseClaim(name)
		switch {
		case !ok:
		case released:
			ended[n] = true
		default:
			l.number = max(l.number, n)
		}
	}
	if l.number == 0 {
		return l, nil
	}
	l.released = ended[l.number]
	l.claim, err = d.readClaim(l.number)
	if errors.Is(err, ErrDamaged) {
		l.damage, err = err, nil
	}
	return l, err
}

// readClaim reads the record of a claim. The error of one that is not there, or is no record, is
// [ErrDamaged].
func (d Dir) readClaim(number int64) (*Claim, error) {
	text, err := d.readFile(claimFile(number))
	path := strings.TrimSuffix(d.String(), "/") + "/" + claimFile(number)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged("read %s: it is not there", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, lasting(err))
	}
	c := new(Claim)
	if err := json.Unmarshal(text, c); err != nil || c.Format != claimFormat || c.Number != number ||
		c.Owner.Job == "" {
		return nil, damaged("read %s: it is no record of an owner that this program reads", path)
	}
	return c, nil
}

// mostClaim is the maximum size of a claim's record, in bytes.
const mostClaim = 1 << 20

func (d Dir) readFile(name string) ([]byte, error) {
	f, size, closer, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	return io.ReadAll(io.NewSectionReader(f, 0, min(size, mostClaim)))
}

// Owned returns the last claim of the directory; nil: it has no owner, or was released by its last
// one.
func (d Dir) Owned() (*Claim, error) {
	l, err := d.lastClaim()
	if err == nil && !l.released {
		err = l.damage
	}
	if err != nil || l.released {
		return nil, err
	}
	return l.claim, nil
}

// ErrUsed is wrapped by errors about a directory that is expected to have no checkpoints.
var ErrUsed = errors.New("it has checkpoints already")

// Unused returns an [ErrUsed] if a commit was begun in the directory, by any job. The error names
// the job that made the last claim, if that can be read.
func (d Dir) Unused() error {
	all, err := Dir{Files: d.Files}.Commits()
	if err != nil {
		return err
	}
	newest := slices.IndexFunc(all, func(e Entry) bool { return e.Begun || e.Err != nil })
	if newest < 0 {
		return nil
	}
	of := ""
	if l, err := d.lastClaim(); err == nil && l.claim != nil {
		of = fmt.Sprintf(", of %v", l.claim.Owner)
	}
	return fmt.Errorf("%w%s, the newest is number %d; expected a directory without any:"+
		" give another, or begin from these by --checkpoint_dir_for_init", ErrUsed, of, all[newest].Number)
}

// use decides whether a job may use the directory, and explains a refusal.
func (d Dir) use(me Owner, p Permit, l lastClaim) (Use, string, error) {
	if l.damage != nil && !l.released {
		if p.TakeOver {
			return Take, "is taken over from an unknown owner", nil
		}
		return Refuse, "", fmt.Errorf("%w: its owner is not known: %w; expected a directory that no "+
			"other job uses; if none uses it, confirm that with --checkpoint_dir_take_over", ErrOwned, l.damage)
	}
	standing := Unknown
	if l.claim != nil && !l.released && p.Look != nil {
		standing = p.Look(l.claim.Owner)
	}
	use, why := MayUse(me, p, l.claim, l.released, standing)
	if use == Refuse {
		return use, why, fmt.Errorf(
			"%w: it %s; expected a directory for this job alone; if that job no longer exists, confirm with --checkpoint_dir_take_over",
			ErrOwned, why)
	}
	return use, why, nil
}

// MayClaim returns why a job could not claim the directory now ([ErrOwned]), nil if it could. It
// changes nothing.
func (d Dir) MayClaim(me Owner, p Permit) error {
	l, err := d.lastClaim()
	if err == nil {
		_, _, err = d.use(me, p, l)
	}
	return err
}

// Claimed is a directory that a job has claimed.
type Claimed struct {
	Claim
	// the directory …
	Why string
	// the place has no exclusive creation: two claims at one moment are noticed only when the first
	// commit is made
	Weak bool
}

// Claim makes a job the owner of the directory, before it writes anything else there. The error of
// a directory of another job is [ErrOwned]. Processes of one job may claim at the same time: they
// get the same claim.
func (d Dir) Claim(me Owner, p Permit, now time.Time) (Claimed, error) {
	for range claimTries {
		l, err := d.lastClaim()
		if err != nil {
			return Claimed{}, err
		}
		use, why, err := d.use(me, p, l)
		if err != nil {
			return Claimed{}, err
		}
		if use == Keep {
			return Claimed{Claim: *l.claim, Why: why}, nil
		}
		c := Claim{Format: claimFormat, Number: l.number + 1, Nonce: rand.Text(), Time: now.UTC(), Owner: me}
		weak, err := d.writeClaim(c)
		if err != nil {
			return Claimed{}, fmt.Errorf("claim %v: %w", d, err)
		}
		if l, err = d.lastClaim(); err != nil {
			return Claimed{}, err
		}
		if l.claim != nil && l.claim.is(c) && !l.released {
			return Claimed{*l.claim, why, weak}, nil
		}
	}
	return Claimed{}, fmt.Errorf("%w: other jobs claim it at the same time, over and over", ErrOwned)
}

// writeClaim creates the record of a claim, unless there is one of that number. Its owner has to be
// read: the answer to a creation may be lost. weak reports that the place creates a file that is
// there.
func (d Dir) writeClaim(c Claim) (weak bool, err error) {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return false, err
	}
	create := func() error {
		f, err := d.CreateNew(claimFile(c.Number))
		if err != nil {
			return err
		}
		defer f.Abort()
		if _, err := f.Write(append(text, '\n')); err != nil {
			return err
		}
		return f.Commit()
	}
	err = create()
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// The second creation must fail. Where it does not it has changed nothing, as its content is
	// the same.
	err = create()
	if errors.Is(err, fs.ErrExist) {
		err = nil
	} else if err == nil {
		weak = true
	}
	return weak, err
}

// Holds returns [ErrOwned] if a claim does not count any more: another was made after it, or it was
// released.
func (d Dir) Holds(c Claim) error {
	l, err := d.lastClaim()
	switch {
	case err != nil:
		return err
	case l.claim != nil && l.claim.is(c) && !l.released:
		return nil
	case l.claim != nil && !l.claim.is(c):
		return fmt.Errorf("%w: it was claimed by %v at %s", ErrOwned, l.claim.Owner, l.claim.Time.Format(time.RFC3339))
	case l.released:
		return fmt.Errorf("%w: claim %d was released", ErrOwned, c.Number)
	case l.damage != nil:
		return fmt.Errorf("%w: %w", ErrOwned, l.damage)
	}
	return fmt.Errorf("%w: the record of claim %d no longer exists", ErrOwned, c.Number)
}

// is reports whether two claims are one, or such as two processes of one job make at the same time
// where a place is weak.
func (c Claim) is(o Claim) bool { return c.Number == o.Number && c.Owner == o.Owner }

// Release ends a claim, for a job that has ended: from then on any job may claim the directory. It
// changes nothing if another claim was made after it.
func (d Dir) Release(c Claim) error {
	if err := d.Holds(c); err != nil {
		if errors.Is(err, ErrOwned) {
			return nil
		}
		return err
	}
	f, err := d.Files.Create(claimFile(c.Number) + releasedMark)
	if err == nil {
		defer f.Abort()
		if _, err = io.WriteString(f, c.Nonce+"\n"); err == nil {
			err = f.Commit()
		}
	}
	if err != nil {
		return fmt.Errorf("release %v: %w", d, err)
	}
	return nil
}

// LocalOwner returns the owner of a local job whose process with that ID lives as long as the job.
// Fields that this system does not report are empty: then nobody can prove that the job has ended.
func LocalOwner(job, name, state string, pid int) Owner {
	o := Owner{Job: job, Name: name, State: state, PID: pid}
	o.Host, _ = os.Hostname()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	o.Boot = strings.TrimSpace(string(boot))
	o.PIDs, _ = os.Readlink("/proc/self/ns/pid")
	o.Started = started(pid)
	return o
}

// Ended reports whether the process of an owner is proved to have ended: it was on this machine,
// since whose start it ended. known is false if this machine cannot tell.
func (o Owner) Ended() (gone, known bool) {
	here := LocalOwner(o.Job, o.Name, o.State, o.PID)
	if o.Boot == "" || o.PIDs == "" || o.Started == "" || o.Boot != here.Boot || o.PIDs != here.PIDs {
		return false, false
	}
	return here.Started != o.Started, true
}

// started returns when a process started, in ticks since the start of the machine; "": there is no
// such process.
func started(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// the name before may contain anything, also this
	_, rest, ok := strings.Cut(string(stat), ") ")
	for ok && strings.Contains(rest, ") ") {
		_, rest, ok = strings.Cut(rest, ") ")
	}
	const starttime, state = 22, 3 // numbers of the fields
	fields := strings.Fields(rest)
	if len(fields) <= starttime-state || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[starttime-state]
}
