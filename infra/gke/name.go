package gke

import "github.com/elasticdl/elasticdl/infra/settings"

// The greatest lengths of names.
const (
	maxName    = 63 // most resources
	maxCluster = 40
	maxAccount = 30
	maxLabel   = 63
)

// region returns the region of a zone, or the location itself if it is a region.
func region(location string) string {
	name, _ := settings.Region(location)
	return name
}
