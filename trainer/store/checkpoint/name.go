package checkpoint

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// prefix begins the names of commits.
const prefix = "commit-"

// Name identifies a commit in its directory. Its text is the name of the commit's directory:
// commit-00000041-2-5f3a9c1b is commit 41 of claim 2, which was made by the owner whose UID has a
// hash that begins with 5f3a9c1b.
type Name struct {
	Number int64
	// tag of the claim under which the commit was made ([Claim.Tag]); "": the commit is older than
	// claims
	Claim string
}

// tagForm is the form of a claim's tag.
var tagForm = regexp.MustCompile(`^[1-9][0-9]{0,17}-[0-9a-f]{8}$`)

// String returns the name of the commit's directory.
func (n Name) String() string {
	text := fmt.Sprintf("%s%08d", prefix, n.Number)
	if n.Claim != "" {
		text += "-" + n.Claim
	}
	return text
}

// ParseName reads what a user calls a commit: its number, or the name of its directory. By its
// number alone, the claim is "".
func ParseName(text string) (n Name, ok bool) {
	if n, ok = parseName(text); ok {
		return n, true
	}
	digits := strings.TrimPrefix(text, prefix)
	number, err := strconv.ParseInt(digits, 10, 64)
	return Name{Number: number}, err == nil && number > 0 && digits[0] != '+'
}

// Is reports whether a name that a user has given is that of a commit: by number alone it is that
// of any with the number.
func (n Name) Is(of Name) bool {
	return n.Number == of.Number && (n.Claim == "" || n.Claim == of.Claim)
}

// parseName is the inverse of [Name.String]; ok is false for any other text.
func parseName(text string) (n Name, ok bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	digits, tag, tagged := strings.Cut(rest, "-")
	number, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || number <= 0 || tagged && !tagForm.MatchString(tag) {
		return Name{}, false
	}
	n = Name{number, tag}
	return n, n.String() == text
}

// claimNumber returns the number of the claim under which the commit was made; 0: the commit is
// older than claims.
func (n Name) claimNumber() int64 {
	digits, _, _ := strings.Cut(n.Claim, "-")
	number, _ := strconv.ParseInt(digits, 10, 64)
	return number
}

// owner returns the hash of the UID of the job that made the commit; "": the commit is older than
// claims.
func (n Name) owner() string {
	_, hash, _ := strings.Cut(n.Claim, "-")
	return hash
}

// newer orders names: the newest first.
func newer(a, b Name) int {
	return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(b.claimNumber(), a.claimNumber()),
		cmp.Compare(b.Claim, a.Claim))
}

// split takes the last name of a location apart, and what follows a question mark in the name of a
// bucket.
func split(location string) (parent, name, query string) {
	if at := strings.Index(location, "?"); at >= 0 && strings.Contains(location[:at], "://") {
		location, query = location[:at], location[at:]
	}
	location = strings.TrimRight(location, "/")
	if i := strings.LastIndex(location, "/"); i >= 0 {
		return location[:i+1], location[i+1:], query
	}
	return "./", location, query
}

// Split splits the location of a file into that of its directory and its name.
func Split(location string) (dir, name string) {
	parent, name, query := split(location)
	return parent + query, name
}

// Within splits a location that may be of one commit into that of its directory and the commit's
// name; the zero Name: the location is of a directory.
func Within(location string) (dir string, commit Name) {
	parent, name, query := split(location)
	n, ok := parseName(name)
	if !ok {
		return location, Name{}
	}
	return parent + query, n
}
