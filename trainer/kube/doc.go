// Package kube runs jobs on Kubernetes, and is the only one that talks to it.
package kube
