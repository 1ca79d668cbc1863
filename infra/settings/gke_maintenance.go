package settings

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// NoNodeUpgrades is the scope of an exclusion in which no node is drained for an upgrade: the
// control plane gets patches only.
const NoNodeUpgrades = "NO_MINOR_OR_NODE_UPGRADES"

const noUpgrades = "NO_UPGRADES"

// Limits of GKE.
const (
	maxExclusions = 20
	// number of exclusions with the scope NO_UPGRADES
	maxNoUpgrades = 3
	// length of such an exclusion; others may last until the support of the version ends
	maxFrozen = 90 * 24 * time.Hour
	// GKE starts no upgrade in a shorter window
	minWindow = 4 * time.Hour
	maxWindow = 24 * time.Hour
)

var (
	isTime          = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)
	isRecurrence    = regexp.MustCompile(`^FREQ=(DAILY|WEEKLY|MONTHLY)(;[A-Z]+=[A-Z0-9,+-]+)*$`)
	isExclusionName = regexp.MustCompile(`^[a-z]([-a-z0-9_]{0,61}[a-z0-9])?$`)
)

func (m *Maintenance) check(s *Settings, p *Problems) {
	const at = "gke.maintenance."
	switch w := m.Window; {
	case w == nil:
		p.Check(isTime.MatchString(m.DailyStart), at+"dailyStart",
			"%s: expected a time of day in UTC, as \"03:00\"; or give gke.maintenance.window", orMissing(m.DailyStart))
	default:
		p.Check(m.DailyStart == "", at+"dailyStart",
			"%s: gke.maintenance.window says when already: remove one of the two", m.DailyStart)
		start, end := p.times(at+"window", w.Start, w.End)
		p.Check(end.Sub(start) == 0 || end.Sub(start) >= minWindow, at+"window.end",
			"%s: expected %v or more after start: GKE begins no upgrade in a shorter window", w.End, minWindow)
		p.Check(end.Sub(start) <= maxWindow, at+"window.end", "%s: expected %v or less after start", w.End, maxWindow)
		p.Check(isRecurrence.MatchString(w.Recurrence), at+"window.recurrence",
			"%s: expected a rule of RFC 5545, as FREQ=WEEKLY;BYDAY=SA,SU", orMissing(w.Recurrence))
	}
	p.Check(len(m.Exclusions) <= maxExclusions, at+"exclusions", "%d exclusions: expected at most %d",
		len(m.Exclusions), maxExclusions)
	frozen := 0
	for i, e := range m.Exclusions {
		path := fmt.Sprintf("%sexclusions[%d]", at, i)
		e.check(path, s, p)
		p.Check(!slices.ContainsFunc(m.Exclusions[:i], func(o MaintenanceExclusion) bool {
			return o.Name == e.Name
		}), path+".name", "%s occurs twice", e.Name)
		if e.Scope == noUpgrades {
			frozen++
		}
		p.Check(e.Scope != noUpgrades || frozen <= maxNoUpgrades, path+".scope",
			"%s: GKE takes at most %d exclusions with that scope: expected %s", e.Scope, maxNoUpgrades, NoNodeUpgrades)
	}
}

func (e *MaintenanceExclusion) check(path string, s *Settings, p *Problems) {
	p.Check(isExclusionName.MatchString(e.Name), path+".name",
		"%s: expected at most 63 lower-case letters, digits, '-' and '_', beginning with a letter", orMissing(e.Name))
	p.oneOf(path+".scope", cmp.Or(e.Scope, NoNodeUpgrades), noUpgrades, "NO_MINOR_UPGRADES", NoNodeUpgrades)
	start, end := p.times(path, e.Start, e.End)
	p.Check(e.Scope != noUpgrades || end.Sub(start) <= maxFrozen, path+".end",
		"%s: more than 90 days after start: expected fewer, or scope: %s", e.End, NoNodeUpgrades)
	if !end.IsZero() && end.Before(s.Now) {
		s.note("%s: %s ended on %s: GKE upgrades again; remove it", path, e.Name, end.Format(time.DateOnly))
	}
}

// times checks the times start and end below a path and returns them; the zero Time means that one
// is not valid.
func (p *Problems) times(path, start, end string) (from, to time.Time) {
	from, to = p.time(path+".start", start), p.time(path+".end", end)
	if from.IsZero() || to.IsZero() {
		return time.Time{}, time.Time{}
	}
	p.Check(to.After(from), path+".end", "%s: expected a time after start, %s", end, start)
	return from, to
}

// time checks a time in the format of RFC 3339, in the form that GKE returns: another form would be
// a difference in every preview.
func (p *Problems) time(path, text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	ok := err == nil && strings.HasSuffix(text, "Z") && t.Format(time.RFC3339) == text
	p.Check(ok, path, "%s: expected a time in UTC, as \"2026-12-24T00:00:00Z\"", orMissing(text))
	if !ok {
		return time.Time{}
	}
	return t
}
