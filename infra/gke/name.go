package gke

import "strings"

// How long names may be.
const (
	maxName    = 63 // of most things
	maxCluster = 40
	maxAccount = 30
	maxLabel   = 63
)

// isZone reports whether a location is a zone, as "us-central1-c", and not a region.
func isZone(location string) bool { return strings.LastIndex(location, "-") == len(location)-2 }

// region returns that of a zone, or itself.
func region(location string) string {
	if isZone(location) {
		return location[:len(location)-2]
	}
	return location
}
