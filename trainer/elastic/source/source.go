// Package source parses the location of a user's program from the first words of a command.
//
//	main.py --epochs=2                       a file of this machine, or a command on PATH:
//	                                         taken unchanged
//	s3://bucket/main.py --epochs=2           an object of Amazon S3, or of a store that speaks its
//	                                         protocol
//	gs://bucket/main.py                      an object of Google Cloud Storage
//	https://host/main.py                     a file on the web
//	s3://bucket/code.tar.gz main.py --epochs=2
//	                                         an archive, and the script in it: .tar.gz, .tgz,
//	                                         .tar, .zip
//	https://host/main.py#sha256=9f86d0…      any of them, with the checksum that it must have
//	http://files.lan/main.sh#sha256=9f86d0…  a file of a private network, only with its checksum
//
// The forms are those of torchelastic's fetch_and_run, and more. Package fetch gets what this
// package reads.
//
// Laws:
//
//  1. Files from the web are fetched by https. It comes by http from this machine, or with a
//     checksum from a private network.
//  2. A script in an archive is below the directory into which the archive is unpacked.
//  3. No secret is in a name that is printed: what follows a question mark stays out.
package source

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Program holds the source of a program and its arguments.
type Program struct {
	Kind Kind
	// path or URL, without the checksum
	Location string
	// of the file: "main.py", "code.tar.gz"; "" for Local
	Name string
	// Single for Local
	Archive Archive
	// of an archive: the path of the script in it, with slashes
	Script string
	// of the script
	Args []string
	// in lower-case hexadecimal digits; "": not given
	SHA256 string
}

// Kind is a kind of place.
type Kind string

// The kinds of places.
const (
	Local  Kind = "local"
	Bucket Kind = "bucket" // s3:// or gs://
	// https://, or http:// of this machine or a private network
	Web Kind = "web"
)

// Archive is the format of an archive.
type Archive string

// The kinds of archives.
const (
	Single  Archive = "" // one file, the script itself
	Tar     Archive = "tar"
	GzipTar Archive = "tar.gz"
	Zip     Archive = "zip"
)

// Error says why a command does not name a program.
type Error struct {
	Location string // as [Shown] has it; "" if there is none
	Reason   error
}

func (e *Error) Error() string {
	if e.Location == "" {
		return "program: " + e.Reason.Error()
	}
	return "program " + e.Location + ": " + e.Reason.Error()
}

func (e *Error) Unwrap() error { return e.Reason }

// ErrTwoChecksums is returned for a program with two different checksums.
var ErrTwoChecksums = errors.New("differs from the checksum given separately; leave one of them out")

const expected = "expected a path, s3://BUCKET/FILE, gs://BUCKET/FILE or https://HOST/FILE"

const mark = "#sha256="

// Parse reads a command. sha256 is a checksum given separately, as by --program_sha256; "" if none
// was.
func Parse(command []string, sha256 string) (Program, error) {
	if len(command) == 0 || command[0] == "" {
		return Program{}, &Error{"", errors.New("none given; " + expected)}
	}
	location, sum, marked := strings.Cut(command[0], mark)
	p := Program{Kind: Local, Location: location, Args: command[1:]}
	fail := func(format string, args ...any) (Program, error) {
		return Program{}, &Error{Shown(location), fmt.Errorf(format, args...)}
	}
	if marked || sha256 != "" {
		if marked && sha256 != "" && !strings.EqualFold(sum, sha256) {
			return fail("%s%s %w", mark, sum, ErrTwoChecksums)
		}
		if !marked {
			sum = sha256
		}
		if b, err := hex.DecodeString(sum); err != nil || len(b) != 32 {
			return fail("sha256 %q: expected 64 hexadecimal digits, as sha256sum prints them", sum)
		}
		p.SHA256 = strings.ToLower(sum)
	}
	scheme, _, remote := strings.Cut(location, "://")
	if !remote {
		if location == "" {
			return fail("it is empty; %s", expected)
		}
		return p, nil
	}
	u, err := url.Parse(location)
	if err != nil {
		return fail("no URL; %s", expected) // err has the URL in it
	}
	switch {
	case scheme == "s3" || scheme == "gs":
		p.Kind = Bucket
		if u.Host == "" || u.User != nil || strings.Contains(u.Host, ":") {
			return fail("no bucket; expected %s://BUCKET/FILE; the address of a store goes into ?endpoint=", scheme)
		}
	case scheme == "https", scheme == "http" && (loopback(u.Hostname()) || p.SHA256 != "" && !public(u.Hostname())):
		p.Kind = Web
		if u.Hostname() == "" {
			return fail("no host; %s", expected)
		}
		if u.User != nil {
			return fail("the address contains a user name; expected one without, or a signed one")
		}
	case scheme == "http" && public(u.Hostname()):
		return fail("http:// would let anyone on the way change the program; expected https://")
	case scheme == "http":
		return fail("http:// would let anyone on the way change the program; expected https://, or, "+
			"of a private network, the program's checksum: "+
			"append %s and what sha256sum prints, or give --program_sha256", mark)
	default:
		return fail("unknown kind of place %q; %s", scheme, expected)
	}
	if strings.Contains(location, "#") {
		return fail("unexpected text after #; expected %s and a checksum, or %%23 for the character", mark)
	}
	p.Name = path.Base(u.Path)
	if u.Path == "" || strings.HasSuffix(u.Path, "/") || !local(strings.TrimPrefix(u.Path, "/")) {
		return fail("no file is named; %s", expected)
	}
	return p.withScript()
}

// withScript returns the program of an archive with its script, which is the first argument.
func (p Program) withScript() (Program, error) {
	if p.Archive = archiveOf(p.Name); p.Archive == Single {
		return p, nil
	}
	if len(p.Args) == 0 {
		return Program{}, &Error{p.String(),
			fmt.Errorf("it is an archive; expected the path of the script in it next, as: %s main.py", p)}
	}
	p.Script, p.Args = path.Clean(p.Args[0]), p.Args[1:]
	if p.Script == "." || !local(p.Script) {
		return Program{}, &Error{p.String(),
			fmt.Errorf("the script %q is not in the archive; expected a path in it, as: main.py", p.Script)}
	}
	return p, nil
}

// String names the program to users.
func (p Program) String() string { return Shown(p.Location) }

// Shown returns a location without what follows a question mark, which may have a signature in it,
// and without a user's name.
func Shown(location string) string {
	scheme, rest, remote := strings.Cut(location, "://")
	if !remote {
		return location
	}
	rest, _, _ = strings.Cut(rest, "?")
	host, file, slash := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	if slash {
		host += "/" + file
	}
	return scheme + "://" + host
}

// Credential returns the name of a URL parameter that grants access to anyone who has the URL, as
// in a signed URL; "" if there is none.
func Credential(location string) string {
	_, query, _ := strings.Cut(location, "?")
	query, _, _ = strings.Cut(query, "#")
	for parameter := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(parameter, "=")
		if unescaped, err := url.QueryUnescape(name); err == nil {
			name = unescaped
		}
		low := strings.ToLower(name)
		if low == "sig" || low == "key" || slices.ContainsFunc(secrets, func(s string) bool {
			return strings.Contains(low, s)
		}) {
			return name
		}
	}
	return ""
}

// secrets are parts of the names of secret parameters: X-Amz-Signature, X-Goog-Signature,
// access_token, api_key.
var secrets = []string{"signature", "token", "secret", "password", "api_key", "apikey", "credential"}

func archiveOf(name string) Archive {
	name = strings.ToLower(name)
	for _, a := range []struct {
		suffix string
		Archive
	}{{".tar.gz", GzipTar}, {".tgz", GzipTar}, {".tar", Tar}, {".zip", Zip}} {
		if strings.HasSuffix(name, a.suffix) {
			return a.Archive
		}
	}
	return Single
}

// local reports whether a path with slashes stays below where it begins, on every system.
func local(p string) bool {
	if p == "" || strings.ContainsAny(p, "\\\x00") || path.IsAbs(p) {
		return false
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return false
		}
	}
	return true
}

// loopback reports whether a host is this machine, whatever a resolver says.
func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// public reports whether a host is an address that is not of a private network. Of a name that is
// known only when it is resolved: see [Private].
func public(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && !Private(a)
}

// shared is the address space of carriers and of some clusters' pods, RFC 6598.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// Private reports whether an address is of this machine or of a private network.
func Private(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || shared.Contains(a)
}

// Secure reports whether a program may come from a URL: by https, or by http from this machine.
// Check the targets of redirects, too.
func Secure(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname())
}
