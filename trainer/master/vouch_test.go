package master

import (
	"encoding/json"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A master tells an agent as which owner it claims, and what is known about another one; without
// a way to find out that is nothing.
func TestVouch(t *testing.T) {
	me, other := checkpoint.Owner{Job: "uid", Name: "job", Host: "h", PID: 3}, checkpoint.Owner{Job: "other", Name: "x"}
	text, err := json.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	for _, look := range []bool{false, true} {
		m := &master{shared: shared{Config: &Config{Job: new(job.Job), Owner: me, Ancestors: []string{"a", "b"}},
			mu: make(turn, 1)}}
		want := checkpoint.Unknown
		if look {
			want = checkpoint.Suspended
			m.Look = func(o checkpoint.Owner) checkpoint.Standing {
				if o != other {
					t.Errorf("looks for %v", o)
				}
				return want
			}
		}
		for _, owner := range []string{"", string(text)} {
			reply, err := m.Vouch(t.Context(), &wire.VouchRequest{Owner: owner})
			var got checkpoint.Owner
			if err != nil || json.Unmarshal([]byte(reply.Owner), &got) != nil || got != me ||
				!slices.Equal(reply.Ancestors, m.Ancestors) {
				t.Fatalf("%v, %v", reply, err)
			}
			if s := checkpoint.Standing(reply.Standing); owner != "" && s != want || owner == "" &&
				s != checkpoint.Unknown {
				t.Errorf("standing %v of %q, want %v", s, owner, want)
			}
		}
		if _, err := m.Vouch(t.Context(), &wire.VouchRequest{Owner: "{"}); look &&
			status.Code(err) != codes.InvalidArgument {
			t.Errorf("an owner that is none: %v", err)
		}
	}
}
