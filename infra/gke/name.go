package gke

import "strings"

// The greatest lengths of names.
const (
	maxName    = 63 // most resources
	maxCluster = 40
	maxAccount = 30
	maxLabel   = 63
)

// isZone reports whether a location is a zone, as "us-central1-c", and not a region.
func isZone(location string) bool { return strings.LastIndex(location, "-") == len(location)-2 }

// region returns the region of a zone, or the location itself if it is a region.
func region(location string) string {
	if isZone(location) {
		return location[:len(location)-2]
	}
	return location
}
