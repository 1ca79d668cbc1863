package eks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/eks"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// States of a version, in the words of EKS.
const (
	standardSupport = "STANDARD_SUPPORT"
	extendedSupport = "EXTENDED_SUPPORT"
)

// kubernetes is a version of Kubernetes that EKS knows.
type kubernetes struct {
	name, status string
	// the last days of support, zero if Amazon does not report them
	standard, extended time.Time
	// new clusters have it unless they name another
	isDefault bool
}

// lookUpVersions asks Amazon for the versions of Kubernetes, also for those without support.
func (p *parts) lookUpVersions() ([]kubernetes, error) {
	all := true
	found, err := eks.GetClusterVersions(p.ctx, &eks.GetClusterVersionsArgs{IncludeAll: &all}, p.invokes...)
	if err != nil {
		return nil, fmt.Errorf("list the versions of Kubernetes in %s (eks:DescribeClusterVersions, needed "+
			"to check eks.version): %w", p.e.Region, err)
	}
	var versions []kubernetes
	for _, v := range found.ClusterVersions {
		standard, err := day(v.EndOfStandardSupportDate)
		extended, err2 := day(v.EndOfExtendedSupportDate)
		if err := errors.Join(err, err2); err != nil {
			return nil, fmt.Errorf("read the dates of version %s: %w", v.ClusterVersion, err)
		}
		versions = append(versions, kubernetes{name: v.ClusterVersion, status: v.VersionStatus,
			standard: standard, extended: extended, isDefault: v.DefaultVersion})
	}
	return versions, nil
}

// day reads a date in the format of RFC 3339; "" is the zero time.
func day(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339, text)
}

// wanted is the version of the cluster, and what the user should know about it.
type wanted struct {
	version string
	// why a new cluster cannot have it; "" = it can
	refused string
	// a warning, also for a cluster that exists; "" = none
	note string
}

// choose returns the version that the settings name. Without one, a cluster that exists keeps its
// version, and a new cluster has Amazon's default.
func choose(all []kubernetes, e *settings.EKS, running string, now time.Time) wanted {
	w := wanted{version: cmp.Or(e.Version, running)}
	if w.version == "" {
		i := slices.IndexFunc(all, func(v kubernetes) bool { return v.isDefault })
		if i < 0 {
			w.refused = "eks.version: missing, and Amazon names no default: give a version, as one of " + supported(all)
			return w
		}
		w.version = all[i].name
	}
	i := slices.IndexFunc(all, func(v kubernetes) bool { return v.name == w.version })
	refuse := func(format string, args ...any) {
		w.refused = fmt.Sprintf("eks.version: %s: ", w.version) + fmt.Sprintf(format, args...)
		w.note = w.refused + "; a cluster that exists works on, until Amazon upgrades it"
	}
	switch {
	case i < 0:
		refuse("Amazon does not offer it: expected one of %s", supported(all))
	case all[i].status == extendedSupport && e.SupportType != "EXTENDED":
		refuse("its standard support ended%s: expected one of %s, or eks.supportType: EXTENDED, which "+
			"costs six times as much", on(all[i].standard), supported(all))
	case all[i].status == standardSupport:
		if end := all[i].standard; !end.IsZero() && now.After(end.AddDate(0, -1, 0)) {
			w.note = fmt.Sprintf("eks.version: the standard support of %s ends%s", w.version, on(end))
		}
	case all[i].status != extendedSupport:
		refuse("Amazon does not support it any more (its support ended%s): expected one of %s",
			on(all[i].extended), supported(all))
	}
	return w
}

// unchecked returns the version if Amazon's list cannot be read. A cluster that exists works on
// without it, and a new one is not created.
func unchecked(why error, e *settings.EKS, running string) (wanted, error) {
	if running == "" {
		return wanted{}, why
	}
	return wanted{version: cmp.Or(e.Version, running), note: why.Error()}, nil
}

func on(day time.Time) string {
	if day.IsZero() {
		return ""
	}
	return " on " + day.Format(time.DateOnly)
}

// supported lists the versions in standard support, the newest last.
func supported(all []kubernetes) string {
	var names []string
	for _, v := range all {
		if v.status == standardSupport {
			names = append(names, v.name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(minor(a), minor(b)) })
	return strings.Join(names, ", ")
}

// minor returns the 35 of "1.35", or 0.
func minor(version string) int {
	_, text, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
