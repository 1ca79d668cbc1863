package source

import (
	"errors"
	"net/url"
	"path"
	"reflect"
	"strings"
	"testing"
)

var sum = strings.Repeat("0123456789abcdef", 4)

func TestParse(t *testing.T) {
	for command, want := range map[string]Program{
		"main.py --epochs=2": {Kind: Local, Location: "main.py",
			Args: []string{"--epochs=2"}},
		"./code.tar.gz main.py": {Kind: Local, Location: "./code.tar.gz",
			Args: []string{"main.py"}},
		"a#b.py": {Kind: Local, Location: "a#b.py", Args: []string{}},
		"/x/main.py#sha256=" + sum: {Kind: Local, Location: "/x/main.py",
			Args: []string{}, SHA256: sum},
		"s3://b/dir/main.py x": {Kind: Bucket,
			Location: "s3://b/dir/main.py", Name: "main.py", Args: []string{"x"}},
		"gs://b/k.tgz a/b.py c": {Kind: Bucket, Location: "gs://b/k.tgz",
			Name: "k.tgz", Archive: GzipTar, Script: "a/b.py", Args: []string{"c"}},
		"s3://b/k.tar.gz?region=r ./m": {Kind: Bucket,
			Location: "s3://b/k.tar.gz?region=r", Name: "k.tar.gz", Archive: GzipTar, Script: "m", Args: []string{}},
		"https://h/k.ZIP m": {Kind: Web, Location: "https://h/k.ZIP",
			Name: "k.ZIP", Archive: Zip, Script: "m", Args: []string{}},
		"https://h/k.tar m": {Kind: Web, Location: "https://h/k.tar",
			Name: "k.tar", Archive: Tar, Script: "m", Args: []string{}},
		"https://h:1/a%20b.py?t=1": {Kind: Web,
			Location: "https://h:1/a%20b.py?t=1", Name: "a b.py", Args: []string{}},
		"http://127.0.0.2:80/m.py": {Kind: Web,
			Location: "http://127.0.0.2:80/m.py", Name: "m.py", Args: []string{}},
		"http://[::1]/m.py#sha256=" + strings.ToUpper(sum): {Kind: Web, Location: "http://[::1]/m.py",
			Name: "m.py", Args: []string{}, SHA256: sum},
		"http://10.0.0.5:8080/m.sh#sha256=" +
			sum: {Kind: Web, Location: "http://10.0.0.5:8080/m.sh", Name: "m.sh", Args: []string{}, SHA256: sum},
		"http://[fd00::7]/k.tgz#sha256=" + sum +
			" m.sh": {Kind: Web, Location: "http://[fd00::7]/k.tgz", Name: "k.tgz", Archive: GzipTar,
			Script: "m.sh", Args: []string{}, SHA256: sum},
		"http://files.ml.svc/m.py#sha256=" +
			sum: {Kind: Web, Location: "http://files.ml.svc/m.py", Name: "m.py", Args: []string{}, SHA256: sum},
		"http://nas.example.org/m.py#sha256=" +
			sum: {Kind: Web, Location: "http://nas.example.org/m.py", Name: "m.py", Args: []string{}, SHA256: sum},
	} {
		got, err := Parse(strings.Fields(command), "")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", command, got, err, want)
		}
	}
	if p, err := Parse([]string{"http://10.0.0.5/m.py"}, sum); err != nil || p.Kind != Web {
		t.Errorf("http with a separate checksum: %+v, %v", p, err)
	}
	if p, err := Parse([]string{"s3://b/m.py"}, sum); err != nil || p.SHA256 != sum {
		t.Errorf("separate checksum: %+v, %v", p, err)
	}
	if p, err := Parse([]string{"s3://b/m.py#sha256=" + sum}, strings.ToUpper(sum)); err != nil || p.SHA256 != sum {
		t.Errorf("the same checksum twice: %+v, %v", p, err)
	}
}

func TestParseErrors(t *testing.T) {
	for command, want := range map[string]string{
		"":                  "program: none given; expected a path, s3://BUCKET/FILE",
		"#sha256=" + sum:    "it is empty",
		"main.py#sha256=12": "64 hexadecimal digits",
		"ftp://h/main.py":   `program ftp://h/main.py: unknown kind of place "ftp"`,
		"http://example.org/main.py": "http:// would let anyone on the way change the " +
			"program; expected https://",
		"http://10.0.0.5/main.py": "of a private network, the program's checksum: " +
			"append #sha256= and what sha256sum prints, or give --program_sha256",
		"http://files/main.sh":                  "append #sha256=",
		"http://8.8.8.8/m#sha256=" + sum:        "change the program; expected https://",
		"http://[2001:db8::1]/m":                "change the program; expected https://",
		"http://u:secret@files/m#sha256=" + sum: "contains a user name",
		"http://127.0.0.1.example.org/m":        "expected https://",
		"http://localhost.example.org/m":        "expected https://",
		"https:///main.py":                      "no host",
		"https://user:secret@h/main.py":         "contains a user name",
		"s3://user:secret@b/main.py":            "no bucket",
		"s3://b:9000/main.py":                   "goes into ?endpoint=",
		"s3:///main.py":                         "no bucket",
		"s3://b":                                "no file is named",
		"s3://b/":                               "no file is named",
		"s3://b/dir/":                           "no file is named",
		"s3://b/../main.py":                     "no file is named",
		"https://h/..":                          "no file is named",
		"https://h/a%2f..":                      "no file is named",
		"https://h/x%5c..%5cy":                  "no file is named",
		"https://h/main.py#main":                "unexpected text after #; expected #sha256=",
		"https://h/%zz?key=secret":              "no URL",
		"s3://b/k.tar.gz": "it is an archive; expected the path of the script " +
			"in it next, as: s3://b/k.tar.gz main.py",
		"s3://b/k.zip ../main.py":          `the script "../main.py" is not in the archive`,
		"s3://b/k.zip /bin/sh":             `the script "/bin/sh" is not in the archive`,
		"s3://b/k.zip .":                   `the script "." is not in the archive`,
		"https://h/k.zip?key=secret a/../": `program https://h/k.zip: the script "."`,
	} {
		_, err := Parse(strings.Fields(command), "")
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v, want %q", command, err, want)
		}
	}
	if _, err := Parse([]string{"m.py#sha256=" + sum}, strings.Repeat("0", 64)); !errors.Is(err, ErrTwoChecksums) {
		t.Errorf("two checksums: %v", err)
	}
	if _, err := Parse(nil, ""); err == nil {
		t.Error("no command: no error")
	}
}

func FuzzParse(f *testing.F) {
	for _, word := range []string{"main.py", "s3://b/k.tar.gz?region=r", "gs://b/a.zip",
		"https://u:p@h:1/x?y#sha256=" + sum, "http://[::1]/m", "http://h/../x"} {
		f.Add(word, "a/../main.py", sum)
	}
	f.Fuzz(func(t *testing.T, word, script, sha256 string) {
		p, err := Parse([]string{word, script}, sha256)
		if err != nil {
			return
		}
		if p.SHA256 != "" && len(p.SHA256) != 64 || sha256 != "" && p.SHA256 == "" {
			t.Errorf("checksum %q", p.SHA256)
		}
		if p.Kind == Local {
			if strings.Contains(p.Location, "://") || len(p.Args) != 1 {
				t.Errorf("%+v is local", p)
			}
			return
		}
		u, err := url.Parse(p.Location)
		if err != nil || u.Fragment != "" || u.Host == "" || u.User != nil || p.Kind == Web &&
			!Secure(u) && (p.SHA256 == "" || public(u.Hostname())) {
			t.Errorf("%+v: %v", p, err)
		}
		if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/\\\x00") {
			t.Errorf("name %q", p.Name)
		}
		if (p.Archive == Single) != (p.Script == "") || p.Script != "" &&
			!strings.HasPrefix(path.Join("/archive", p.Script), "/archive/") {
			t.Errorf("script %q of archive %q", p.Script, p.Archive)
		}
		if strings.Contains(p.String(), "?") {
			t.Errorf("shown as %s", p)
		}
	})
}

// Credential returns the name of the query parameter that holds a secret, "" if there is none.
func TestCredential(t *testing.T) {
	for location, want := range map[string]string{
		"https://b.s3.amazonaws.com/main.py?X-Amz-Expires=60&X-Amz-Signature=00":        "X-Amz-Signature",
		"https://storage.googleapis.com/b/main.py?x-goog-signature=00":                  "x-goog-signature",
		"https://a.blob.core.windows.net/c/main.py?sv=2024&sig=0#sha256=00":             "sig",
		"https://host/main.py?private_token=glpat":                                      "private_token",
		"https://host/main.py?private%5Ftoken=glpat":                                    "private_token",
		"https://host/main.py?ref=main":                                                 "",
		"https://host/main.py?ref=signature":                                            "",
		"https://host/signature/main.py#sig=1":                                          "",
		"s3://b/main.py?region=us-east-1&use_path_style=true&endpoint=https://host%2F?": "",
		"main.py": "",
	} {
		if got := Credential(location); got != want {
			t.Errorf("%s: %q, want %q", location, got, want)
		}
	}
}
