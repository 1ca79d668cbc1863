//go:build !e2e

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// promises has the comments of the pages on commands that change a stack, and how a test sees that
// the commands do so.
var promises = map[string]func(was, is moment) error{
	"about 15 minutes the first time; says when the job trains":               trains, // see TestStart
	"about 25 minutes the first time; says when the job trains":               trains,
	"some minutes the first time, for images; says when the job trains":       trains,
	"adds a worker to the running job":                                        growsByOne,
	"one update; nothing is replaced":                                         grows,
	"one update; the job continues with another worker":                       growsByOne,
	"allows the deletion of the data":                                         opens,
	"the bucket and the images may go":                                        opens,
	"data, code and images may go":                                            opens,
	"some minutes: builds, pushes, brings the data; says when the job trains": trains,
	"the volume and its data may go":                                          opens,
	"shows a preview and asks":                                                trains,
}

// moment is the state of a stack between two commands of a page.
type moment struct {
	workers int // job.numWorkers of the file
	// number of calls that changed a resource, by their text
	made map[string]int
}

// trains reports whether a command has created the job's master.
func trains(was, is moment) error {
	if created := "create " + jobMaster; is.made[created] != was.made[created]+1 {
		return errors.New("it does not create the job")
	}
	return nil
}

// grows reports whether a command has given the running job more workers, and has done nothing
// else.
func grows(was, is moment) error {
	did := is.since(was)
	if is.workers <= was.workers {
		return fmt.Errorf("the job had %d workers, and now %d", was.workers, is.workers)
	}
	if len(did) != 1 || !strings.HasPrefix(did[0], "update kubernetes:core/v1:ConfigMap ") {
		return fmt.Errorf("it does %q, and not one update", did)
	}
	return nil
}

// growsByOne reports whether a command has given the running job one more worker.
func growsByOne(was, is moment) error {
	if is.workers != was.workers+1 {
		return fmt.Errorf("the job had %d workers, and now %d", was.workers, is.workers)
	}
	return grows(was, is)
}

// opens reports whether a command has deleted and replaced nothing. That the data may be deleted
// after it is seen when the page does so: on Google's cloud only the state changes.
func opens(was, is moment) error {
	for _, did := range is.since(was) {
		if !strings.HasPrefix(did, "update ") {
			return fmt.Errorf("it does %q", did)
		}
	}
	return nil
}

// since returns the calls after another moment, in the order of their texts.
func (m moment) since(was moment) (did []string) {
	for _, call := range slices.Sorted(maps.Keys(m.made)) {
		for range m.made[call] - was.made[call] {
			did = append(did, call)
		}
	}
	return did
}

var numWorkers = regexp.MustCompile(`(?m)^ +numWorkers: ([0-9]+)`)

// now returns the present moment.
func (r *reader) now() (moment, error) {
	m := moment{made: map[string]int{}}
	for _, call := range r.cloud.Calls() {
		m.made[call.String()]++
	}
	text, err := os.ReadFile(filepath.Join(r.dir, r.file()))
	if err != nil {
		return m, err
	}
	if found := numWorkers.FindSubmatch(text); found != nil {
		m.workers, err = strconv.Atoi(string(found[1]))
	}
	return m, err
}

// changes matches commands that change a stack, with their comment.
var changes = regexp.MustCompile(`\bpulumi up\b.*?\s+# (.+)`)

// promised returns steps of a page, with checks of what their comments promise: events of
// [reader.promiseEvents].
func promised(all []step) (with []step) {
	for _, s := range all {
		found := changes.FindStringSubmatch(s.command)
		if found == nil {
			with = append(with, s)
			continue
		}
		with = append(with, step{"the test", 0, "happens 'before a promise'\n"}, s,
			step{"the test", 0, "happens " + shellQuote("promise: "+strings.TrimSpace(found[1])) + "\n"})
	}
	return with
}

// promiseEvents adds the events of [promised].
func (r *reader) promiseEvents(events map[string]func() error) {
	var was moment
	events["before a promise"] = func() (err error) {
		was, err = r.now()
		return err
	}
	for comment, kept := range promises {
		events["promise: "+comment] = func() error {
			is, err := r.now()
			if err == nil {
				err = kept(was, is)
			}
			if err != nil {
				return fmt.Errorf("the page promises that it %q: %w", comment, err)
			}
			return nil
		}
	}
}
