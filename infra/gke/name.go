package gke

import "strings"

// How long names may be.
const (
	maxName    = 63 // of most things
	maxCluster = 40
	maxAccount = 30
	maxLabel   = 63
)

// isZone tells "us-central1-c" from "us-central1".
func isZone(location string) bool { return strings.LastIndex(location, "-") == len(location)-2 }

// region is that of a zone, or itself.
func region(location string) string {
	if isZone(location) {
		return location[:len(location)-2]
	}
	return location
}
