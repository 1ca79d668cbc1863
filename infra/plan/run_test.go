package plan

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

// fake is a shell whose previews print a text, or fail, and that records the commands.
func fake(shown []byte, previewed, updated error) (s Shell, ran *[]string, problems *bytes.Buffer) {
	ran, problems = &[]string{}, &bytes.Buffer{}
	return Shell{Problems: problems, Out: io.Discard,
		Settings: func(stack string) ([]byte, error) { return []byte(file), nil },
		Pulumi: func(_ context.Context, out io.Writer, args ...string) error {
			*ran = append(*ran, strings.Join(args, " "))
			if args[0] != "preview" {
				return updated
			}
			if _, err := out.Write(shown); err != nil {
				return err
			}
			return previewed
		}}, ran, problems
}

// An update looks at the clouds as its plan did, and does not begin if it differs, or if nobody can
// know.
func TestApply(t *testing.T) {
	broken := errors.New("exit status 255")
	was, other := shown(one("create", "a:b:C", "n", "")), shown(one("create", "a:b:C", "m", ""))
	for name, tt := range map[string]struct {
		shown              []byte
		refresh            bool
		previewed, updated error
		up                 bool
		want               string
	}{
		"as planned":         {shown: was, up: true},
		"with a look":        {shown: was, refresh: true, up: true},
		"other steps":        {shown: other, want: ErrDiffers.Error()},
		"no preview":         {previewed: broken, want: "preview of gke: exit status 255"},
		"half a preview":     {shown: was, previewed: broken, want: "preview of gke: exit status 255"},
		"no JSON":            {shown: []byte("x"), want: "expected what `pulumi preview --json` prints"},
		"update that failed": {shown: was, up: true, updated: broken, want: "update of gke: exit status 255"},
	} {
		reviewed, err := Read("gke", tt.refresh, []byte(file), was)
		if err != nil {
			t.Fatal(err)
		}
		s, ran, problems := fake(tt.shown, tt.previewed, tt.updated)
		err = s.Apply(t.Context(), "gke", reviewed)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, expected %q", name, err, tt.want)
		}
		look := " --stack=gke --refresh=false"
		if tt.refresh {
			look = " --stack=gke --refresh=true"
		}
		want := []string{"preview --json" + look}
		if tt.up {
			want = append(want, "up --yes --skip-preview"+look)
		}
		if !slices.Equal(*ran, want) {
			t.Errorf("%s: it ran %q, expected %q", name, *ran, want)
		}
		if differs := errors.Is(err, ErrDiffers); differs != strings.Contains(problems.String(), "+ create a:b:C m") {
			t.Errorf("%s: %v, and it prints\n%s", name, err, problems)
		}
	}
	s, ran, _ := fake(was, nil, nil)
	for _, stack := range []string{"", "../gke"} {
		if _, err := s.Make(t.Context(), stack, false); err == nil || len(*ran) > 0 {
			t.Errorf("stack %q: %v", stack, err)
		}
	}
}

// The plan of one stack updates no other.
func TestApplyToAnother(t *testing.T) {
	s, ran, _ := fake(shown(), nil, nil)
	reviewed, err := Read("gke", false, []byte(file), shown())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), "eks", reviewed); !errors.Is(err, ErrDiffers) || len(*ran) != 1 {
		t.Errorf("%v, after %q", err, *ran)
	}
}
