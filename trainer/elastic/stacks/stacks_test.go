package stacks

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// dump writes the stack of a main thread as faulthandler does, "file:line function" for each call,
// the innermost first.
func dump(calls ...string) string {
	var text strings.Builder
	text.WriteString("Thread 0x00007ff7d1f2b6c0 (most recent call first):\n" +
		"  File \"/usr/lib/python3.11/threading.py\", line 982 in run\n\n" +
		"Current thread 0x00007ff7d2c8eb80 (most recent call first):\n")
	for _, call := range calls {
		i, j := strings.LastIndexByte(call, ':'), strings.LastIndexByte(call, ' ')
		fmt.Fprintf(&text, "  File \"%s\", line %s in %s\n", call[:i], call[i+1:j], call[j+1:])
	}
	return text.String()
}

const (
	torch = "/venv/lib/python3.11/site-packages/torch/"
	work  = "/code/train.py:90 <module>"
	boot  = "<elasticdl fork server>:560 run_script"
)

var (
	reduces = dump(torch+"distributed/distributed_c10d.py:2501 all_reduce",
		torch+"distributed/c10d_logger.py:75 wrapper", "/code/train.py:41 step", work, boot, "<string>:1 <module>")
	sleeps = dump("/code/data.py:12 __getitem__", torch+"utils/data/_utils/fetch.py:51 fetch",
		"/code/train.py:30 epoch", work, boot)
	loops = dump("/code/train.py:55 spin", work)
)

// The telling line of a stack.
func TestTelling(t *testing.T) {
	for _, c := range []struct{ text, call, want string }{
		{reduces, "poll", "all_reduce at train.py:41"},
		{sleeps, "sleep", "sleep at data.py:12"},
		{loops, "", "running at train.py:55"},
		{dump(work), "lock", "lock at train.py:90"},
		{dump(torch+"_tensor.py:5 wrapper", "/code/train.py:41 step"), "", "wrapper at train.py:41"},
		{dump(torch+"autograd/__init__.py:700 _engine_run_backward", torch+"_tensor.py:500 backward",
			"/code/train.py:41 step"), "", "backward at train.py:41"},
		{dump("/code/model.py:7 forward", torch+"nn/modules/module.py:1 _call_impl", "/code/train.py:41 step"), "",
			"running at model.py:7"},
		// a module of Python's that is the program
		{dump("/usr/lib/python3.11/http/server.py:9 serve", "<frozen runpy>:88 _run_code"), "poll",
			"poll at server.py:9"},
		{dump("/opt/conda/lib/python3.8/socket.py:9 accept", "/code/a/../train.py:3 main"), "accept",
			"accept at train.py:3"},
		{dump("<frozen importlib._bootstrap>:7 _find_and_load", "/code/train.py:3 <module>"), "",
			"running at train.py:3"},
		{dump("/code/train.py:??? main"), "", "running at train.py"},
	} {
		if r := Compare([]Rank{{Rank: 5, Text: c.text, Call: c.call}}); r.String() != "rank 5: "+c.want {
			t.Errorf("%q, want %q", r, c.want)
		}
	}
}

// ranks returns ranks with these texts.
func ranks(texts ...string) (all []Rank) {
	for i, text := range texts {
		r := Rank{Rank: i, Text: text}
		switch text {
		case sleeps:
			r.Call = "sleep"
		case reduces:
			r.Call = "poll"
		}
		if strings.HasPrefix(text, "no stacks: ") {
			r.Text, r.Why = "", text
		}
		all = append(all, r)
	}
	return all
}

// repeat returns n texts.
func repeat(n int, text string) []string { return slices.Repeat([]string{text}, n) }

func TestCompare(t *testing.T) {
	const replaced = "no stacks: the program has replaced its interpreter"
	other := strings.Replace(reduces, "line 41", "line 43", 1)
	copied := strings.ReplaceAll(loops, "/code/", "/copy/")
	for name, c := range map[string]struct {
		texts  []string
		want   string
		differ []int
	}{
		"none": {nil, "", nil},
		"one sleeps": {append(repeat(3, reduces), append([]string{sleeps}, repeat(4, reduces)...)...),
			"7 ranks: all_reduce at train.py:41; rank 3: sleep at data.py:12", []int{3}},
		"one of two": {[]string{sleeps, reduces},
			"rank 0: sleep at data.py:12; rank 1: all_reduce at train.py:41", []int{0}},
		"two that loop": {[]string{sleeps, loops},
			"rank 0: sleep at data.py:12; rank 1: running at train.py:55", nil},
		"all": {repeat(4, reduces), "4 ranks: all_reduce at train.py:41", nil},
		"other lines": {[]string{reduces, other, reduces, other, sleeps}, "ranks 0, 2: all_reduce at train.py:41; " +
			"ranks 1, 3: all_reduce at train.py:43; rank 4: sleep at data.py:12", []int{4}},
		"the culprits are more": {[]string{sleeps, sleeps, sleeps, reduces},
			"3 ranks: sleep at data.py:12; rank 3: all_reduce at train.py:41", []int{3}},
		"without stacks": {append(repeat(3, reduces), replaced),
			"3 ranks: all_reduce at train.py:41; rank 3: " + replaced, []int{3}},
		"none with stacks": {repeat(3, replaced), "3 ranks: " + replaced, nil},
		"several differ": {append(repeat(20, reduces), sleeps, sleeps, sleeps, loops),
			"20 ranks: all_reduce at train.py:41; ranks 20-22: sleep at data.py:12; rank 23: running at train.py:55",
			[]int{20, 21, 22, 23}},
		"the smaller group has higher ranks": {append([]string{loops, sleeps, sleeps}, repeat(4, reduces)...),
			"4 ranks: all_reduce at train.py:41; ranks 1, 2: sleep at data.py:12; rank 0: running at train.py:55",
			[]int{0, 1, 2}},
		"files of one name": {append(repeat(3, loops), copied),
			"3 ranks: running at code/train.py:55; rank 3: running at copy/train.py:55", []int{3}},
		"garbage": {append(repeat(2, loops), "x", "Current thread 0x1 (most recent call first):\n  <no Python frame>\n"),
			"ranks 0, 1: running at train.py:55; ranks 2, 3: no stacks: the process has written none", nil},
	} {
		r := Compare(ranks(c.texts...))
		if r.String() != c.want || !slices.Equal(r.Differ, c.differ) {
			t.Errorf("%s: %q, differ %v\nwant %q, %v", name, r, r.Differ, c.want, c.differ)
		}
	}
}

// A report about a thousand ranks is short, and still names the one that differs.
func TestCompareThousand(t *testing.T) {
	texts := repeat(1000, reduces)
	texts[617] = sleeps
	r := Compare(ranks(texts...))
	if want := "999 ranks: all_reduce at train.py:41; rank 617: sleep at data.py:12"; r.String() != want {
		t.Errorf("%q", r)
	}
	for i := range texts {
		texts[i] = dump(fmt.Sprintf("/code/train.py:%d evaluate", i+1))
	}
	texts[3] = sleeps
	if r = Compare(ranks(texts...)); len(r.String()) > 600 || len(r.Groups) != 1000 ||
		!slices.Equal(r.Differ, []int{3}) ||
		!strings.HasSuffix(r.String(), "; 990 ranks at 990 other places") {
		t.Errorf("%d groups, differ %v, %q", len(r.Groups), r.Differ, r)
	}
	for i := range texts {
		texts[i] = reduces
		if i%2 == 0 && i < 100 {
			texts[i] = sleeps
		}
	}
	if r = Compare(ranks(texts...)); r.String() !=
		"950 ranks: all_reduce at train.py:41; 50 ranks: sleep at data.py:12" || len(r.Differ) != 50 {
		t.Errorf("%q, differ %v", r, r.Differ)
	}
}

// A report has the calls of the program, with short paths, and not those of its start.
func TestFrames(t *testing.T) {
	want := []Frame{{"distributed_c10d.py", 2501, "all_reduce"}, {"c10d_logger.py", 75, "wrapper"},
		{"train.py", 41, "step"}, {"train.py", 90, "<module>"}}
	if got := Compare(ranks(reduces)).Groups[0].Frames; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

func TestDebugged(t *testing.T) {
	r := Compare(ranks(loops, dump("/usr/lib/python3.11/bdb.py:9 dispatch_line", "/code/train.py:3 main"), reduces,
		dump("/venv/lib/python3.11/site-packages/debugpy/server/api.py:1 wait", "/code/train.py:3 main")))
	if !slices.Equal(r.Debugged, []int{1, 3}) {
		t.Errorf("%v", r.Debugged)
	}
}

func TestParse(t *testing.T) {
	const text = "  File \"/cut.py\", line 1 in outer\n\n" +
		"Thread 0x00007f01 [worker, 1] (most recent call first):\n" +
		"  Garbage-collecting\n" +
		"  File \"/a\", line 7 in b.py\", line 12 in <listcomp>\n" +
		"  File ???, line ??? in ???\n  ...\n\n" +
		"Current thread 0x00007f02 (most recent call first):\n" +
		"  File \"/\\xe4.py\", line 99999999999 in f\n  File \"\x1b[31m.py\", line 3 in \x07g\n" +
		"  File \"/c.py\", line 3 in <module>\r\n  File \"/c.py\", line 3 i"
	want := Dump{Threads: []Thread{
		{Name: "worker, 1", Cut: true, Frames: []Frame{{"/a\", line 7 in b.py", 12, "<listcomp>"}, {"???", 0, "???"}}},
		{Current: true, Frames: []Frame{{"?[31m.py", 3, "?g"}, {"/c.py", 3, "<module>"}}},
	}}
	if got := Parse(text); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	main, ok := Parse(dump("/c.py:3 main") +
		"\nThread 0x1 (most recent call first):\n  File \"/d.py\", line 1 in run\n...\n").Main()
	if !ok || main.Frames[0].File != "/c.py" {
		t.Errorf("of too many threads the main one is %+v", main)
	}
	if _, ok := Parse("").Main(); ok {
		t.Error("an empty text has a main thread")
	}
}

// written writes a dump as faulthandler does.
func written(d Dump) string {
	var b strings.Builder
	for _, t := range d.Threads {
		kind, name := "Thread", ""
		if t.Current {
			kind = "Current thread"
		}
		if t.Name != "" {
			name = " [" + t.Name + "]"
		}
		fmt.Fprintf(&b, "%s 0x0a%s (most recent call first):\n", kind, name)
		for _, f := range t.Frames {
			line := "???"
			if f.Line > 0 {
				line = fmt.Sprint(f.Line)
			}
			fmt.Fprintf(&b, "  File \"%s\", line %s in %s\n", f.File, line, f.Function)
		}
		if t.Cut {
			b.WriteString("  ...\n")
		}
		b.WriteString("\n")
	}
	if d.More {
		b.WriteString("...\n")
	}
	return b.String()
}

// Any text can be compared, and its meaning is the same when it is written and read again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{reduces, sleeps, "", "...\n", "  File ???, line ??? in ???\n",
		"Thread 0x1 [a] (most recent call first):\n  File \"a\", line 1 in b\n  ...\n...\n",
		"Current thread 0x1 (most recent call first):\n  File \"\", line 0 in b\n  File \"\"\", line 1 in  in \n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d := Parse(text)
		if again := Parse(written(d)); !reflect.DeepEqual(d, again) {
			t.Errorf("%q\nis %+v\nwritten %q\nis %+v", text, d, written(d), again)
		}
		r := Compare([]Rank{{Rank: 0, Text: text}, {Rank: 1, Text: reduces}, {Rank: 2, Text: text, Call: "read"}})
		if strings.ContainsAny(r.String(), "\n\x1b") {
			t.Errorf("%q", r)
		}
	})
}

// The laws of the package.
func TestLaws(t *testing.T) {
	choices := []string{reduces, sleeps, loops, dump("/code/eval.py:7 evaluate"), "no stacks: replaced", "garbage"}
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.SampledFrom(choices), 0, 12).Draw(t, "texts")
		all := ranks(texts...)
		r := Compare(all)
		var members []int
		for i, g := range r.Groups {
			members = append(members, g.Ranks...)
			if !slices.IsSorted(g.Ranks) || len(g.Ranks) == 0 || i > 0 && len(g.Ranks) > len(r.Groups[i-1].Ranks) {
				t.Fatalf("group %d: %+v", i, g)
			}
			for _, rank := range g.Ranks {
				if texts[rank] != texts[g.Ranks[0]] {
					t.Fatalf("%d and %d are in one group", rank, g.Ranks[0])
				}
				if slices.Contains(r.Differ, rank) != g.Differs {
					t.Fatalf("rank %d, %v: %v", rank, r.Differ, g)
				}
			}
		}
		slices.Sort(members)
		if len(members) != len(texts) || len(slices.Compact(members)) != len(texts) {
			t.Fatalf("%v are in groups", members)
		}
		if n := len(r.Differ); n > 0 && (2*n >= len(texts) && len(texts) != 2 || len(r.Groups) < 2) {
			t.Fatalf("%v of %d differ", r.Differ, len(texts))
		}
		if shuffled := Compare(rapid.Permutation(all).Draw(t, "shuffled")); !reflect.DeepEqual(shuffled, r) {
			t.Fatalf("%+v\nand in another order %+v", r, shuffled)
		}
	})
}

// A finding has the ranks that differ first, and says if there are none.
func TestFinding(t *testing.T) {
	at := func(n int, file string) Rank {
		return Rank{Rank: n, Text: "Thread 0x1 (most recent call first):\n  File \"/code/" + file + "\", line 9 in f\n",
			Call: "sleep"}
	}
	a, b := func(n int) Rank { return at(n, "a.py") }, func(n int) Rank { return at(n, "b.py") }
	for want, ranks := range map[string][]Rank{
		"3 ranks: sleep at a.py:9":                                                         {a(0), a(1), a(2)},
		"rank 1 differs: sleep at b.py:9; ranks 0, 2: sleep at a.py:9":                     {a(0), b(1), a(2)},
		"ranks 1, 4 differ: sleep at b.py:9; 3 ranks: sleep at a.py:9":                     {a(0), b(1), a(2), a(3), b(4)},
		"no place has most of the ranks: rank 0: sleep at a.py:9; rank 1: sleep at b.py:9": {a(0), b(1)},
	} {
		if got := Compare(ranks).Finding(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for want, ranks := range map[string][]int{"rank 3": {3}, "ranks 0-2, 5": {0, 1, 2, 5},
		"ranks 0, 2, 4, 6, 8, 10, 12, 14, and others": {0, 2, 4, 6, 8, 10, 12, 14, 16, 18}} {
		if got := Names(ranks); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
