package laws

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// create creates a file that is not there yet.
func create(f checkpoint.Files, name, content string) error {
	w, err := f.CreateNew(name)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write([]byte(content)); err != nil {
		return err
	}
	return w.Commit()
}

// Of several that create a file at the same time one succeeds, and its content stays.
func createdOnce(t *testing.T, p Place) {
	if p.Weak {
		t.Skip("the place has no exclusive creation")
	}
	f := p.Open(t)
	for round := range 5 {
		name := fmt.Sprintf("dir/file-%d", round)
		errs := make([]error, 8)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = create(f, name, fmt.Sprint("content of ", i)) })
		}
		all.Wait()
		winner := slices.Index(errs, nil)
		for i, err := range errs {
			if i != winner && !errors.Is(err, fs.ErrExist) {
				t.Errorf("creation %d: %v, expected that %d was first", i, err, winner)
			}
		}
		if got, err := get(f, name); winner < 0 || err != nil || string(got) != fmt.Sprint("content of ", winner) {
			t.Errorf("%d was first, the file has %q: %v", winner, got, err)
		}
		if err := create(f, name, "late"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a later creation: %v", err)
		}
		if left := list(t, f, "dir"); len(left) != round+1 {
			t.Errorf("left are %v", left)
		}
	}
}

func owner(uid string) checkpoint.Owner { return checkpoint.Owner{Job: uid, Name: "job-" + uid} }

// A directory has one owner: others are refused until it is released, inherited, or proved to be
// left.
func oneOwner(t *testing.T, p Place) {
	d, now := checkpoint.Dir{Files: p.Open(t)}, time.Unix(1e9, 0)
	claim := func(uid string, permit checkpoint.Permit, number int64) checkpoint.Claim {
		t.Helper()
		got, err := d.Claim(owner(uid), permit, now)
		if err != nil || got.Number != number || got.Owner.Job != uid || got.Weak != p.Weak {
			t.Fatalf("claim of %s: %+v, %v, want number %d", uid, got, err, number)
		}
		return got.Claim
	}
	refused := func(uid, by string) {
		t.Helper()
		for _, err := range []error{d.MayClaim(owner(uid), checkpoint.Permit{}),
			second(d.Claim(owner(uid), checkpoint.Permit{}, now))} {
			if !errors.Is(err, checkpoint.ErrOwned) || !strings.Contains(err.Error(), "job job-"+by) ||
				!strings.Contains(err.Error(), "--checkpoint_dir_take_over") {
				t.Fatalf("claim of %s: %v", uid, err)
			}
		}
	}
	if err := d.MayClaim(owner("a"), checkpoint.Permit{}); err != nil {
		t.Fatal(err)
	}
	a := claim("a", checkpoint.Permit{}, 1)
	if again, err := d.Claim(owner("a"), checkpoint.Permit{}, now); err != nil || again.Nonce != a.Nonce {
		t.Fatalf("the owner's own: %+v, %v", again, err)
	}
	refused("b", "a")
	if err := d.Holds(a); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(a); err != nil {
		t.Fatal(err)
	}
	if err := d.Holds(a); !errors.Is(err, checkpoint.ErrOwned) {
		t.Fatalf("a claim that was released: %v", err)
	}
	claim("b", checkpoint.Permit{}, 2)
	refused("a", "b")
	if err := d.Holds(a); !errors.Is(err, checkpoint.ErrOwned) || !strings.Contains(err.Error(), "job-b") {
		t.Fatalf("a claim before the last: %v", err)
	}
	claim("c", checkpoint.Permit{Ancestors: []string{"x", "b"}}, 3)
	claim("d", checkpoint.Permit{Look: func(o checkpoint.Owner) checkpoint.Standing {
		return map[string]checkpoint.Standing{"c": checkpoint.Dead}[o.Job]
	}}, 4)
	claim("e", checkpoint.Permit{TakeOver: true}, 5)
	if owned, err := d.Owned(); err != nil || owned.Owner.Job != "e" {
		t.Errorf("it is owned by %v: %v", owned, err)
	}
	// a record that nobody can read may be of a job
	put(t, d.Files, "owner-00000006", nil)
	if err := d.MayClaim(owner("e"), checkpoint.Permit{}); !errors.Is(err, checkpoint.ErrOwned) ||
		!strings.Contains(err.Error(), "owner-00000006") {
		t.Errorf("a record that is empty: %v", err)
	}
	claim("f", checkpoint.Permit{TakeOver: true}, 7)
}

func second[T any](_ T, err error) error { return err }

// Of several jobs that claim a directory at the same time one gets it. The processes of one job all
// get the same claim.
func claimsAtOnce(t *testing.T, p Place) {
	if p.Weak {
		t.Skip("the place has no exclusive creation")
	}
	for _, jobs := range []int{1, 6} {
		d := checkpoint.Dir{Files: p.Open(t)}
		got, errs := make([]checkpoint.Claimed, 6), make([]error, 6)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i], errs[i] = d.Claim(owner(fmt.Sprint(i%jobs)), checkpoint.Permit{}, time.Now()) })
		}
		all.Wait()
		nonces := make(map[string]bool)
		for i, err := range errs {
			if err == nil {
				nonces[got[i].Nonce] = true
			} else if jobs == 1 || !errors.Is(err, checkpoint.ErrOwned) {
				t.Errorf("%d jobs, claim %d: %v", jobs, i, err)
			}
		}
		if len(nonces) != 1 {
			t.Errorf("%d jobs: %d claims", jobs, len(nonces))
		}
	}
}

// Whenever a process dies that claims a directory, its job's next one gets it, and no other job
// does once the claim is there.
func deathOfTheClaimant(t *testing.T, p Place) {
	for _, late := range []bool{false, true} {
		for steps := 0; ; steps++ {
			d, left := checkpoint.Dir{Files: p.Open(t)}, steps
			_, err := checkpoint.Dir{Files: dying{d.Files, t, &left, late}}.Claim(owner("a"),
				checkpoint.Permit{}, time.Now())
			owned, look := d.Owned()
			if look != nil {
				t.Fatalf("after %d operations: %v", steps, look)
			}
			if other := d.MayClaim(owner("b"), checkpoint.Permit{}); (other == nil) != (owned == nil) {
				t.Errorf("after %d operations: it is owned by %v, another job: %v", steps, owned, other)
			}
			if next, err := d.Claim(owner("a"), checkpoint.Permit{}, time.Now()); err != nil || next.Number != 1 {
				t.Errorf("after %d operations: %+v, %v", steps, next, err)
			}
			if err == nil {
				break
			}
		}
	}
}

// Two jobs that own a directory at the same time, because a place or a user was wrong, read,
// replace and remove nothing of each other.
func ownersApart(t *testing.T, p Place) {
	f := p.Open(t)
	var dirs []checkpoint.Dir
	var models []model
	for i, uid := range []string{"a", "b"} {
		c := checkpoint.Claim{Number: 3, Owner: owner(uid)}
		dirs, models = append(dirs, checkpoint.Dir{Files: f}.Under(c)),
			append(models, newModel(40, 8, 1, float32(1000*i)))
		for number := range int64(3) {
			m := models[i]
			m.claim, m.job = c.Tag(), uid
			if err := m.write(dirs[i], number+1, 2); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, d := range dirs {
		if err := d.Sweep(9); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Retain(1+i, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i, d := range dirs {
		c, damaged, err := d.Newest()
		if all, _ := numbers(d); err != nil || len(damaged) > 0 || c.Number != 3 ||
			c.Job != []string{"a", "b"}[i] || len(all) != 1+i {
			t.Fatalf("the newest of %d is %+v of %v, damaged %v: %v", i, c, all, damaged, err)
		}
		models[i].holds(t, d, c, 1)
	}
	if _, err := (checkpoint.Dir{Files: f}).Find(3); err == nil ||
		errors.Is(err, checkpoint.ErrDamaged) || !strings.Contains(err.Error(), "several") {
		t.Errorf("a number of two commits: %v", err)
	}
	later := checkpoint.Dir{Files: f}.Under(checkpoint.Claim{Number: 4, Owner: owner("c")}, "x", "b")
	if all, err := numbers(later); err != nil || len(all) != 2 {
		t.Errorf("the heir of the second has %v: %v", all, err)
	}
	if _, err := checkpoint.WriteShard(dirs[0], checkpoint.Name{Number: 5, Claim: "3-01234567"},
		"shard", checkpoint.Part{Values: make([]float32, 4)}); err != nil {
		t.Fatal(err)
	}
	// later owners keep the directory clean
	if err := later.Sweep(9); err != nil {
		t.Fatal(err)
	}
	if _, err := later.Retain(1, nil); err != nil {
		t.Fatal(err)
	}
	if all, err := numbers(later); err != nil || len(all) != 1 {
		t.Errorf("the heir of the second has %v: %v", all, err)
	}
	if all, err := numbers(checkpoint.Dir{Files: f}); err != nil || len(all) != 2 {
		t.Errorf("left are %v: %v", all, err)
	}
}

// Other files in a directory hide no commit, whatever their names.
func strangers(t *testing.T, p Place) {
	empty := p.Open(t)
	put(t, empty, "commit-00009999", []byte("x"))
	if err := (checkpoint.Dir{Files: empty}).Unused(); err != nil {
		t.Errorf("with a file named like a commit: %v", err)
	}
	f := p.Open(t)
	d, m := checkpoint.Dir{Files: f}, newModel(40, 8, 1, 0)
	if err := errors.Join(m.write(d, 1, 2), m.write(d, 2, 2)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"commit-00009999", "commit-9999", "commit-", "commit-00000003-x",
		"commit-00000004/commit.json/x", "commit-00000005/shard", "lost+found/x", "owner-x"} {
		put(t, f, name, []byte(name))
	}
	c, damaged, err := d.Newest()
	if err != nil || c.Number != 2 || len(damaged) > 2 {
		t.Fatalf("the newest is %+v, damaged %v: %v", c, damaged, err)
	}
	m.holds(t, d, c, 1)
	shard := checkpoint.ShardFile(1, 2)
	if err := f.Remove("commit-00000002/" + shard); err != nil {
		t.Fatal(err)
	}
	put(t, f, "commit-00000002/"+shard+"/file", nil) // a directory in the place of a shard
	if c, _, err = d.Newest(); err != nil || c.Number != 1 {
		t.Errorf("the newest is %+v: %v", c, err)
	}
	s, err := checkpoint.Opener(func(string) (checkpoint.Dir, error) { return d, nil }).Find("x")
	if err != nil || s.Commit.Number != 0 {
		t.Errorf("found is %+v: %v", s, err)
	}
}
