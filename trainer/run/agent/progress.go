package agent

import (
	"path/filepath"
	"strings"
)

// progress returns what tells whether the program has got on in the last world: a digest of what
// its processes wrote that have ended, "" if that is nothing, and the time of the newest file of
// --checkpoint_file in Unix milliseconds, 0 if there is none.
func (a *agent) progress() (output string, checkpoint int64) {
	var digests []string
	for _, p := range a.procs {
		if p != nil && p.exit != nil {
			digests = append(digests, p.exit.Output)
		}
	}
	output = strings.Trim(strings.Join(digests, " "), " ")
	if a.Job.Program.Checkpoint == "" {
		return output, 0
	}
	if newest, _ := newestOf(a.checkpoint()); !newest.IsZero() {
		checkpoint = newest.UnixMilli()
	}
	return output, checkpoint
}

// checkpoint returns the pattern of the script's checkpoint files, relative to its processes'
// directory if that is how it was given.
func (a *agent) checkpoint() string {
	pattern := a.Job.Program.Checkpoint
	if filepath.IsAbs(pattern) {
		return pattern
	}
	return filepath.Join(a.workdir, pattern)
}
