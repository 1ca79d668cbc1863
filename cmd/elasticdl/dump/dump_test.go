package dump

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// planted are secrets, and where they are in the files of a job.
var planted = []string{"hunter2-of-a-variable", "hunter2 of an argument", "hunter2ofaurl", "hunter2-of-a-log",
	"hunter2-inherited"}

func plant(_ context.Context) ([]File, error) {
	return []File{
		{Name: "logs/worker-0.log", Text: []byte("connect amqp://me:" + planted[2] + "@queue\nPASSWORD=" + planted[3] +
			"\nalso " + planted[4] + "\nthe variable is " + planted[0] + "\n")},
		{Name: "machine/job.json", Value: map[string]any{"envs": map[string]any{"DB": planted[0]},
			"command": []any{"main.py", "--api_key", planted[1]}, "name": "mnist"}},
		{Name: "status.txt", Text: []byte("main.py --api_key " + planted[1])},
		{Name: "cluster/nodes.json", Why: errors.New("forbidden: " + planted[0])},
		{Name: "cluster/events.json", Value: []string{"Killing"}, Why: errors.New("only the first")},
	}, fmt.Errorf("of it a part: %s", planted[0])
}

// unpack returns the files of an archive.
func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		directory, name, _ := strings.Cut(h.Name, "/")
		if directory != strings.TrimSuffix(filepath.Base(file), ".tar.gz") {
			t.Errorf("%s is not in a directory of the archive's name", h.Name)
		}
		files[name] = string(text)
	}
}

func TestArchiveHasNoSecret(t *testing.T) {
	var steps []string
	d, err := Read(t.Context(), Manifest{Job: "mnist"}, []Part{{"all", time.Minute, plant}},
		map[string]string{"HF_TOKEN": "hunter2-inherited"},
		func(step string) { steps = append(steps, step) })
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "d.tar.gz")
	if err := d.Save(file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive: %v, %v", info.Mode(), err)
	}
	files := unpack(t, file)
	for name, text := range files {
		for _, secret := range planted {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q:\n%s", name, secret, text)
			}
		}
	}
	for name, want := range map[string]string{
		"logs/worker-0.log": "the variable is [redacted DB]\n", "machine/job.json": `"name": "mnist"`,
		"status.txt":    "main.py --api_key [redacted api_key]",
		"manifest.json": `"why": "forbidden: [redacted DB]"`,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, files[name])
		}
	}
	if len(files) != 5 || len(d.Missing) != 3 || d.Redacted["DB"] != 4 {
		t.Errorf("%d files, missing %v, redacted %v", len(files), d.Missing, d.Redacted)
	}
	if want := []string{"all", "removing secrets"}; !slices.Equal(steps, want) {
		t.Errorf("progress: %q", steps)
	}
}

// A file is not replaced, and an archive that cannot be written leaves none.
func TestSaveReplacesNothing(t *testing.T) {
	d, err := Read(t.Context(), Manifest{}, nil, nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	file := filepath.Join(directory, "d.tar.gz")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(file); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	d.add(Entry{Name: "../outside"}, nil)
	if err := d.Save(filepath.Join(directory, "other.tar.gz")); err == nil || !strings.Contains(err.Error(),
		"../outside") {
		t.Errorf("a file outside: %v", err)
	}
	left, err := os.ReadDir(directory)
	if err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Whatever the archive's name is, its files are in a directory. A value that is null is JSON.
func TestArchiveHasDirectory(t *testing.T) {
	d, err := Read(t.Context(), Manifest{}, []Part{{"all", time.Minute, func(context.Context) ([]File, error) {
		return []File{{Name: "cluster/nodes.json", Value: []*int(nil)}, {Name: "machine/launcher.json"}}, nil
	}}}, nil, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"...tar.gz", "..tar.gz", ".tar.gz"} {
		file := filepath.Join(t.TempDir(), name)
		if err := d.Save(file); err != nil {
			t.Fatal(err)
		}
		list, err := exec.Command("tar", "-tzPf", file).Output()
		if err != nil || !strings.HasPrefix(string(list), "debug-dump/manifest.json\n") {
			t.Errorf("%s: %s, %v", name, list, err)
		}
	}
	for i, text := range d.texts {
		if string(text) != "null\n" {
			t.Errorf("%s: %q", d.Files[i].Name, text)
		}
	}
}

// A part that takes too long is left out, with what it has; the end of the command ends all.
func TestPartsHaveLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := Part{"logs", time.Minute, func(ctx context.Context) ([]File, error) {
			<-ctx.Done()
			return []File{{Name: "logs/a.log", Text: []byte("begun\n")}}, ctx.Err()
		}}
		quick := Part{"status", time.Minute, func(context.Context) ([]File, error) {
			return []File{{Name: "status.txt", Text: []byte("running\n")}}, nil
		}}
		d, err := Read(t.Context(), Manifest{}, []Part{slow, quick}, nil, func(string) {})
		if err != nil || len(d.Files) != 2 || len(d.Missing) != 1 ||
			d.Missing[0] != (Missing{"logs", "it took too long: more than 1m0s"}) {
			t.Errorf("%+v, %v", d, err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		interrupted := errors.New("interrupted")
		time.AfterFunc(time.Second, func() { cancel(interrupted) })
		if _, err := Read(ctx, Manifest{}, []Part{slow, quick}, nil, func(string) {}); err != interrupted {
			t.Errorf("%v, want the cause", err)
		}
	})
}

func TestLogs(t *testing.T) {
	l := &Logs{Most: 1000}
	write := func(text string) {
		for part := range slices.Chunk([]byte(text), 7) {
			if n, err := l.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	write("[master] begins\n")
	for i := range 1000 {
		write(fmt.Sprintf("[worker-0] line %3d\n", i))
	}
	write("no prefix\n[../../etc/passwd] x\n[worker-1] not complete")
	got := make(map[string]File)
	for _, f := range l.Files("logs") {
		got[f.Name] = f
	}
	if string(got["logs/master.log"].Text) != "begins\n" || string(got["logs/worker-1.log"].Text) != "not complete\n" ||
		string(got["logs/job.log"].Text) != "no prefix\n[../../etc/passwd] x\n" || len(got) != 4 {
		t.Errorf("%+v", got)
	}
	long := got["logs/worker-0.log"]
	if n := int64(len(long.Text)); n > 1000 || n < 700 || n+long.Left != 9000 ||
		!strings.HasSuffix(string(long.Text), "line 998\nline 999\n") || !strings.HasPrefix(string(long.Text),
		"line ") {
		t.Errorf("%d bytes and %d left out: %q", n, long.Left, long.Text)
	}
}

// A line that is too long keeps its end: no secret whose name is cut off, and no part of one. All
// that is left out is counted.
func TestLongLine(t *testing.T) {
	const secret = "hunter2-of-a-long-line"
	for _, before := range []int{0, 500_000} {
		for after := longestLine - 2000; after < longestLine+100; after += 7 {
			line := strings.Repeat("ab ", before/3) + `"password": "` + secret + `" ` + strings.Repeat("cd ",
				after/3) + "\n"
			l := &Logs{Most: 1 << 20}
			for part := range slices.Chunk([]byte("[worker-0] "+line), 32<<10) {
				l.Write(part)
			}
			f := l.Files("logs")[0]
			text := string(f.Text)
			n := len(text) + int(f.Left)
			if f.Left > 0 && (strings.Contains(text, "hunter") || strings.Contains(text, "line")) {
				t.Fatalf("%d bytes after it, the rest begins with %.60q", after, text)
			}
			if f.Name != "logs/worker-0.log" || n != len(line) || len(text) < longestLine/2 {
				t.Fatalf("%s: %d bytes and %d left out, want %d", f.Name, len(text), f.Left, len(line))
			}
		}
	}
	l := &Logs{Most: 1 << 20} // a line without spaces
	l.Write([]byte("[worker-0] " + strings.Repeat("Q", 1<<20) + "\n"))
	if f := l.Files("logs")[0]; len(f.Text)+int(f.Left) != 1<<20+1 || len(f.Text) > 1 {
		t.Errorf("%d bytes and %d left out", len(f.Text), f.Left)
	}
}

func FuzzLogs(f *testing.F) {
	f.Add("[worker-0] a\n", "b\n[master] c")
	f.Fuzz(func(t *testing.T, a, b string) {
		l := &Logs{Most: 64}
		for _, text := range []string{a, b} {
			if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
				t.Fatal(n, err)
			}
		}
		var held int
		for _, file := range l.Files("logs") {
			held += len(file.Text)
			if !safe(file.Name) || strings.Count(file.Name, "/") != 1 {
				t.Errorf("file %q", file.Name)
			}
		}
		if held > 64 {
			t.Errorf("%d bytes are held", held)
		}
	})
}
