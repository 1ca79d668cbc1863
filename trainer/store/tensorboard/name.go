package tensorboard

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// TensorBoard reads the files of a run in the order of their names, and never returns to an earlier
// one. So the time in a name must be later than that of any other, whatever the clocks of several
// machines show.

var nameOfFile = regexp.MustCompile(`^events\.out\.tfevents\.([0-9]{10})\..*\.elasticdl$`)

// latest is the latest time of a name, in seconds since 1970: it has ten digits.
const latest = 9_999_999_999

// Name returns a name for a file that is read after all the existing ones of a directory.
func Name(existing []string, now time.Time, host string) string {
	second := max(now.Unix(), 1_000_000_000)
	for _, name := range existing {
		if at, ok := timeOf(name); ok && at < latest {
			second = max(second, at+1)
		}
	}
	return fmt.Sprintf("events.out.tfevents.%d.%s.elasticdl", second, unwanted.ReplaceAllString(host, "-"))
}

var unwanted = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// timeOf returns the time in a name; false if it is no name of this package.
func timeOf(name string) (second int64, ok bool) {
	parts := nameOfFile.FindStringSubmatch(name)
	if parts == nil {
		return 0, false
	}
	second, err := strconv.ParseInt(parts[1], 10, 64)
	return second, err == nil
}

// Own returns the names of this package among those of a directory, in the order in which
// TensorBoard reads the files.
func Own(names []string) (own []string) {
	for _, name := range names {
		if _, ok := timeOf(name); ok {
			own = append(own, name)
		}
	}
	slices.Sort(own)
	return own
}
