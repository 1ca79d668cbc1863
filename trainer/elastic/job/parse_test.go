package job

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/secret"
)

func TestParseResources(t *testing.T) {
	for in, want := range map[string]string{
		"cpu=250m,memory=32Mi,disk=64Mi,gpu=1": "cpu=250m,ephemeral-storage=64Mi,memory=32Mi,nvidia.com/gpu=1",
		" cpu = 2 , memory = 4K ,":             "cpu=2,memory=4k",
		"cpu=0.5":                              "cpu=0.5",
		"amd.com/gpu=0,ephemeral-storage=1Gi":  "amd.com/gpu=0,ephemeral-storage=1Gi",
		"nvidia.com/P100-PCIE-16GB-P=1":        "nvidia.com/P100-PCIE-16GB-P=1",
		"":                                     "",
		"cpu=1,cpu=2":                          "!cpu occurs twice",
		"gpu=1,nvidia.com/gpu=1":               "!nvidia.com/gpu occurs twice",
		"disk=1Gi,ephemeral-storage=1Gi":       "!ephemeral-storage occurs twice",
		"cpu=0":                                "!expected a number of cores",
		"cpu=-1":                               "!expected a number of cores",
		"cpu=0.5m":                             "!expected a number of cores",
		"memory=lots":                          "!expected bytes",
		"memory=0Mi":                           "!expected bytes",
		"gpu=0.5":                              "!expected a whole number",
		"cores=2":                              `!unknown resource "cores"`,
		"cpu":                                  `!expected key=value at "cpu"`,
	} {
		r, err := ParseResources(in)
		if !agrees(r.String(), err, want) {
			t.Errorf("%q: %v, %v; want %s", in, r, err, want)
		}
	}
}

// agrees tells whether a parser gave want, or, if that begins with '!', an error that has it.
func agrees(got string, err error, want string) bool {
	if part, bad := strings.CutPrefix(want, "!"); bad {
		return err != nil && strings.Contains(err.Error(), part)
	}
	return err == nil && got == want
}

func TestParseVolumes(t *testing.T) {
	for in, want := range map[string]string{
		"mount_path=/data,claim_name=fileserver-claim": "claim_name=fileserver-claim,mount_path=/data",
		"host_path=/c0,mount_path=/path0;claim_name=c1,mount_path=/p1": "host_path=/c0,mount_path=/path0;" +
			"claim_name=c1,mount_path=/p1",
		"host_path=/d, type=Directory, mount_path=/d, sub_path=s;": "host_path=/d,type=Directory," +
			"mount_path=/d,sub_path=s",
		"":              "",
		"mount_path=/d": "!expected either claim_name or host_path",
		"claim_name=c,host_path=/h,mount_path=/d": "!expected either claim_name or host_path",
		"claim_name=c":                                          "!expected a mount_path that starts with /",
		"claim_name=c,mount_path=data":                          "!expected a mount_path that starts with /",
		"claim_name=c,type=Directory,mount_path=/d":             "!type requires host_path",
		"claim_name=c,claim_name=d,mount_path=/d":               "!claim_name occurs twice",
		"claim=c,mount_path=/d":                                 `!unknown key "claim"`,
		"claim_name=,mount_path=/d":                             "!claim_name is empty",
		"claim_name=a,mount_path=/d;claim_name=b,mount_path=/d": "!mount_path /d occurs twice",
		"claim_name=A,mount_path=/d": "!claim_name=A: expected the name " +
			"of a PersistentVolumeClaim",
		"host_path=c0,mount_path=/path0":  "!host_path=c0: expected a path that starts with /",
		"host_path=/a/../b,mount_path=/d": "!and names no '..'",
		"host_path=/a,type=Folder,mount_path=/d": "!type=Folder: expected one of " +
			"Directory, DirectoryOrCreate",
		"claim_name=c,mount_path=/a:b":             "!expected a path without ':'",
		"claim_name=c,mount_path=/d,sub_path=/s":   "!sub_path=/s: expected a path within the volume",
		"claim_name=c,mount_path=/d,sub_path=s/..": "!sub_path=s/..: expected a path within the volume",
	} {
		v, err := ParseVolumes(in)
		if got := volumes(&v).get(); !agrees(got, err, want) {
			t.Errorf("%q: %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestParsePriority(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "high": "high", "low-priority": "low-priority", "system-node.critical": "system-node.critical",
		"0.5": "high=0.5", "high=0.5": "high=0.5", "0": "low", "1": "high", "urgent=0.25": "urgent=0.25",
		"1.5": "!between 0 and 1", "-1": "!between 0 and 1", "high=x": "!between 0 and 1", "NaN": "!between 0 and 1",
		"High": "!PriorityClass", "a b": "!PriorityClass", "=0.5": "!PriorityClass",
		"0=1": "!PriorityClass", "2=0.5": "!PriorityClass",
	} {
		p, err := ParsePriority(in)
		if !agrees(p.String(), err, want) {
			t.Errorf("%q: %v, %v; want %s", in, p, err, want)
		}
	}
}

// ElasticDL's own example: of 10 workers at 0.5, 0 1 2 8 9 are high.
func TestPriorityOf(t *testing.T) {
	for _, test := range []struct {
		share float64
		n     int
		want  string
	}{{0.5, 10, "hhhlllllhh"}, {0.5, 4, "hllh"}, {0.5, 1, "h"}, {0.1, 4, "hlll"}, {0.75, 4, "hhlh"}} {
		var got strings.Builder
		for i := range test.n {
			got.WriteString(Priority{"high", test.share}.Of(i, test.n)[:1])
		}
		if got.String() != test.want {
			t.Errorf("%v of %d: %s, want %s", test.share, test.n, got.String(), test.want)
		}
	}
	for i := 4; i < 9; i++ { // a job of 4 that has grown
		if got := (Priority{"high", 0.5}).Of(i, 4); got != "low" {
			t.Errorf("worker %d of 4: %s, want low", i, got)
		}
	}
	if got := (Priority{Class: "x"}).Of(3, 9); got != "x" {
		t.Errorf("class x for all: %s", got)
	}
}

func TestParseEnvs(t *testing.T) {
	for in, want := range map[string]map[string]string{
		"A=1,B=2":            {"A": "1", "B": "2"},
		"U=http://h?q=1,V=2": {"U": "http://h?q=1", "V": "2"},
		"L=a,b,c, C=d":       {"L": "a,b,c", "C": "d"},
		"E=":                 {"E": ""},
		"A=x==,B==":          {"A": "x==", "B": "="},
		"P=1,2=3":            {"P": "1,2=3"},
		"":                   {},
	} {
		if got, err := ParseEnvs(in); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"A", "1A=2", "=1", "A=1,A=2", "a b=1"} {
		if got, err := ParseEnvs(in); err == nil {
			t.Errorf("%q: %v, want an error", in, got)
		}
	}
}

func TestParseParams(t *testing.T) {
	want := map[string]string{"columns": "['a', 'b;c']", "sep": ";", "n": "3", "e": ""}
	if got, err := ParseParams(`columns=['a', 'b;c']; sep=";" ;n=3;e='';`); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, in := range []string{"x", "=1", "a=1;a=2"} {
		if got, err := ParseParams(in); err == nil {
			t.Errorf("%q: %v, want an error", in, got)
		}
	}
}

func TestParseBool(t *testing.T) {
	for in, want := range map[string]bool{"True": true, "yes": true, "t": true, "Y": true, "1": true,
		"False": false, "no": false, "n": false, "0": false} {
		if got, err := ParseBool(in); err != nil || got != want {
			t.Errorf("%q: %t, %v", in, got, err)
		}
	}
	if _, err := ParseBool("maybe"); err == nil {
		t.Error("maybe: want an error; ElasticDL takes it for false")
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"300": 5 * time.Minute,
		"1.5": 1500 * time.Millisecond, "90s": 90 * time.Second, "1h5m": 65 * time.Minute} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "soon", "5 minutes", "NaN", "1e400"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("%q: %v, want an error", in, got)
		}
	}
}

// A parsed value is written in a form that parses to the same value.
func FuzzParsers(f *testing.F) {
	for _, s := range []string{"cpu=250m,memory=32Mi,gpu=1",
		"claim_name=c,mount_path=/d;host_path=/h,mount_path=/h", "high=0.5", "0.3", "A=b=c,D=e,f",
		"key=nvidia.com/gpu,operator=Exists,effect=NoSchedule;key=k,value=v,effect=NoExecute,seconds=60",
		"disktype=ssd,example.com/zone=a", "A=b/c;D=e/f", "a;b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var r, r2 Resources
		again(t, s, resources(&r), resources(&r2), func() bool { return maps.Equal(r, r2) })
		var v, v2 []Volume
		again(t, s, volumes(&v), volumes(&v2), func() bool { return reflect.DeepEqual(v, v2) })
		var p, p2 Priority
		again(t, s, priority(&p), priority(&p2), func() bool { return p == p2 && !math.IsNaN(p.Share) })
		var e, e2 map[string]string
		again(t, s, envs(&e), envs(&e2), func() bool { return maps.Equal(e, e2) })
		var o, o2 []Toleration
		again(t, s, tolerations(&o), tolerations(&o2), func() bool { return reflect.DeepEqual(o, o2) })
		var n, n2 map[string]string
		again(t, s, selector(&n), selector(&n2), func() bool { return maps.Equal(n, n2) })
		var m, m2 string
		again(t, s, memory(&m), memory(&m2), func() bool { return m == m2 })
		var l, l2 *Duration
		again(t, s, optionalDuration(&l), optionalDuration(&l2), func() bool { return reflect.DeepEqual(l, l2) })
		var d, d2 Duration
		again(t, s, duration(&d), duration(&d2), func() bool { return d == d2 })
		var x, x2 map[string]SecretRef
		again(t, s, envSecrets(&x), envSecrets(&x2), func() bool { return maps.Equal(x, x2) })
		var y, y2 []string
		again(t, s, names(&y), names(&y2), func() bool { return slices.Equal(y, y2) })
		// it is one of a few words, and none of the value's
		if why := secret.Looks(s, "a"+s); len(why) > 40 {
			t.Errorf("%q", why)
		}
		ParseParams(s)
	})
}

func again(t *testing.T, s string, a, b value, same func() bool) {
	t.Helper()
	if a.set(s) != nil {
		return
	}
	if err := b.set(a.get()); err != nil || !same() {
		t.Errorf("%q was written as %q: %v", s, a.get(), err)
	}
}
