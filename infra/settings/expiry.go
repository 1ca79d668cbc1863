package settings

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Limits of the expiry of objects.
const (
	mostExpiries   = 50 // clouds accept more
	mostExpireDays = 3650
)

// isPrefix matches the beginning of names of objects.
var isPrefix = regexp.MustCompile(`^[^/[:cntrl:]][^[:cntrl:]]{0,199}$`)

// Expiry is the age, in days, at which objects are deleted whose names begin with a prefix.
type Expiry struct {
	Prefix string
	Days   int
}

// Expiries returns the expiries of a bucket, in the order of their prefixes.
func (b *Bucket) Expiries() (all []Expiry) {
	for _, prefix := range slices.Sorted(maps.Keys(b.ExpireDays)) {
		all = append(all, Expiry{prefix, b.ExpireDays[prefix]})
	}
	return all
}

func (b *Bucket) checkExpiry(at string, p *Problems) {
	at += ".expireDays"
	p.Check(len(b.ExpireDays) <= mostExpiries, at, "%d prefixes: expected at most %d", len(b.ExpireDays), mostExpiries)
	for _, e := range b.Expiries() {
		path := Join(at, e.Prefix)
		p.Check(isPrefix.MatchString(e.Prefix) && !strings.HasPrefix(e.Prefix, inBucket), path, "expected the "+
			"beginning of the names of objects, as elasticdl-mnist/checkpoints/")
		p.within(path, e.Days, 1, mostExpireDays)
	}
}

// keptPlaces lists what a job reads again at any time, and its result: nothing of it may expire.
// Checkpoints may, which a job writes again and again.
var keptPlaces = []string{"job.trainingData", "job.validationData", "job.predictionData",
	"job.checkpointDirForInit", "job.output", "job.predictionOutputs", "job.command"}

// checkExpiryJob refuses a prefix by which a place of the job in the bucket would expire. Of places
// within an argument or a variable, which may be those of checkpoints, it adds a note.
func (s *Settings) checkExpiryJob(b *Bucket, section string, store *Store, path, at string, p *Problems) {
	for i, rest := range strings.Split(at, store.plain(""))[1:] {
		end := strings.IndexAny(rest, `?,;: "'`)
		if end < 0 {
			end = len(rest)
		}
		dir := rest[:end]
		sure := i == 0 && strings.HasPrefix(at, store.plain("")) && slices.Contains(keptPlaces, path)
		if sure {
			b.checkKept(section, path, at, dir, p)
			continue
		}
		for _, e := range b.expiriesOf(dir) {
			if path == "job.command" || strings.HasPrefix(path, "job.envs") {
				s.note("%s: %d: objects of %s, %s, expire", Join(section+".expireDays", e.Prefix), e.Days, path, at)
			}
		}
	}
}

// expiriesOf returns the expiries by which objects of a directory are deleted.
func (b *Bucket) expiriesOf(dir string) (all []Expiry) {
	dir = strings.TrimSuffix(dir, "/") + "/"
	for _, e := range b.Expiries() {
		if strings.HasPrefix(dir, e.Prefix) || strings.HasPrefix(e.Prefix, dir) {
			all = append(all, e)
		}
	}
	return all
}

// checkKept refuses a prefix by which a directory that is read again would expire.
func (b *Bucket) checkKept(section, path, at, dir string, p *Problems) {
	for _, e := range b.expiriesOf(dir) {
		p.Check(false, Join(section+".expireDays", e.Prefix),
			"%d: %s, %s, would expire: give a longer prefix, or remove this", e.Days, path, at)
	}
}
