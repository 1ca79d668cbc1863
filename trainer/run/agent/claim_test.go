package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// voucher is a fake master that knows its own job, and the state of another one.
type voucher struct {
	wire.MasterClient
	me        checkpoint.Owner
	ancestors []string
	standing  checkpoint.Standing
	takeOver  bool
	asked     []checkpoint.Owner
	paths     []string // of the checkpoints, request by request
	err       error    // of a request about another owner
}

func (v *voucher) Vouch(_ context.Context, r *wire.VouchRequest, _ ...grpc.CallOption) (*wire.VouchReply, error) {
	if r.Owner != "" {
		var other checkpoint.Owner
		if err := json.Unmarshal([]byte(r.Owner), &other); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		if v.asked = append(v.asked, other); v.err != nil {
			return nil, v.err
		}
	}
	v.paths = append(v.paths, r.Path)
	me, err := json.Marshal(v.me)
	return &wire.VouchReply{Owner: string(me), Ancestors: v.ancestors, Standing: int32(v.standing),
		TakeOver: v.takeOver}, err
}

// opening has records open directories.
func opening(r *records) *records {
	r.open = func(_ context.Context, location string) (checkpoint.Files, error) {
		if u, err := checkpoint.ParseLocation(location); u != nil || err != nil {
			return nil, errors.Join(err, errors.New("there are no buckets"))
		}
		return checkpoint.Local(location), nil
	}
	return r
}

// A program's checkpoint has one owner. All processes of that job may use it. Another job may use
// it when that job is known to have ended.
func TestCheckpointOfAProgramHasOneOwner(t *testing.T) {
	first := checkpoint.Owner{Job: "u1", Name: "first", Host: "h", PID: 7}
	for _, c := range []struct {
		name, want string // want is empty: the other job may use it
		by         voucher
	}{
		{"another process of the job", "", voucher{me: first}},
		{"a later start of the job", "", voucher{me: checkpoint.Owner{Job: "u1", Name: "first", Host: "h", PID: 8}}},
		{"a job that continues from it", "", voucher{me: checkpoint.Owner{Job: "u2", Name: "first"},
			ancestors: []string{"u1"}}},
		{"another job, and the first one has ended", "",
			voucher{me: checkpoint.Owner{Job: "u2", Name: "second"}, standing: checkpoint.Dead}},
		{"another job, and the first one runs", "belongs to job first on h (UID u1, process 7)",
			voucher{me: checkpoint.Owner{Job: "u2", Name: "second"}, standing: checkpoint.Alive}},
		{"another job, and the first one is suspended", "belongs to job first",
			voucher{me: checkpoint.Owner{Job: "u2", Name: "second"}, standing: checkpoint.Suspended}},
		{"another job of the same name, and nothing is known",
			"if that job no longer exists, confirm with --checkpoint_dir_take_over",
			voucher{me: checkpoint.Owner{Job: "u2", Name: "first"}}},
		{"another job, and the master cannot tell", "no such job",
			voucher{me: checkpoint.Owner{Job: "u2", Name: "second"},
				err: status.Error(codes.InvalidArgument, "no such job")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kept.pt")
			claim := func(v *voucher) error {
				r := opening(newRecords(v, 0, nil))
				c := &script{owner: &scripts{records: r}}
				_, err := checkpointRequest{path}.answer(t.Context(), c, time.Now())
				return err
			}
			if err := claim(&voucher{me: first}); err != nil {
				t.Fatal(err)
			}
			err := claim(&c.by)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("the claim ends with %v, want %q", err, c.want)
			}
			owner := first
			if c.want == "" {
				owner = c.by.me
			}
			claims := checkpoint.Dir{Files: checkpoint.Local(path)}
			if owned, err := claims.Owned(); err != nil || owned == nil || owned.Owner != owner {
				t.Errorf("the owner is %+v (%v), want %v", owned, err, owner)
			}
			if slices.ContainsFunc(c.by.paths, func(p string) bool { return p != path }) {
				t.Errorf("the master was asked about %q, want %s", c.by.paths, path)
			}
			if c.by.me.Job != first.Job && (len(c.by.asked) == 0 || c.by.asked[0] != first) {
				t.Errorf("the master was asked about %v, want %v", c.by.asked, first)
			}
			if err := claim(&voucher{me: first}); c.want != "" && err != nil {
				t.Errorf("after a refusal the owner may not use it any more: %v", err)
			}
		})
	}
}

// A checkpoint whose owner cannot be read is refused, unless the user has confirmed that it no
// longer exists.
func TestCheckpointOfAnUnknownOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept.pt")
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "owner-00000003"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	me := checkpoint.Owner{Job: "u1", Name: "first"}
	_, err := opening(newRecords(&voucher{me: me}, 0, nil)).claim(t.Context(), path, time.Now())
	if !errors.Is(err, checkpoint.ErrOwned) || !strings.Contains(err.Error(), "--checkpoint_dir_take_over") {
		t.Errorf("without a confirmation: %v", err)
	}
	number, err := opening(newRecords(&voucher{me: me, takeOver: true}, 0, nil)).claim(t.Context(), path, time.Now())
	if err != nil || number != 4 {
		t.Errorf("with a confirmation: claim %d, %v; want 4", number, err)
	}
}

// A checkpoint in a read-only directory is not claimed. A relative path is refused.
func TestClaimOfAPathThatCannotBeWritten(t *testing.T) {
	r := opening(newRecords(&voucher{me: checkpoint.Owner{Job: "u"}}, 0, nil))
	if number, err := r.claim(t.Context(), "/sys/kernel/kept.pt", time.Now()); err != nil || number != 0 {
		t.Errorf("a checkpoint that is only read: claim %d, %v", number, err)
	}
	if _, err := r.claim(t.Context(), "kept.pt", time.Now()); err == nil ||
		!strings.Contains(err.Error(), "expected an absolute path") {
		t.Errorf("a relative path: %v", err)
	}
	for location, want := range map[string]string{"ftp://h/k": "unknown kind of place", "s3://b/k": "no buckets"} {
		if _, err := r.claim(t.Context(), location, time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", location, err)
		}
	}
}
