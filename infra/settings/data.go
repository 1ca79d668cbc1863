package settings

import (
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Names of the claim to a cluster's volume. The jobs of its stack and the tutorials rely on them.
const (
	ClaimGKE = "fileserver-claim" // to gke.filestore
	ClaimEKS = "efs-claim"        // to eks.efs
	// to a directory of the node, which may be mounted from this machine
	ClaimMinikube = "data-claim"
	// to existing.volume, whose name may be another
	ClaimExisting = "data-claim"
)

var isDataset = regexp.MustCompile(`^[a-z][-a-z0-9]*$`)

// Remote reports whether the data set's files are at a URL.
func (d *Data) Remote() bool { return strings.Contains(d.Source, "://") }

func (d *Data) check(s *Settings, in Input, p *Problems) {
	const at = "data."
	p.Check(d.Dataset != "", at+"dataset", "missing: a data set that `elasticdl dataset --help` names, as mnist")
	p.Check(isDataset.MatchString(d.Dataset), at+"dataset",
		"%s: expected a data set that `elasticdl dataset --help` names, as mnist", d.Dataset)
	dir, toBucket := d.InBucket()
	local := filepath.IsLocal(dir) && path.Clean(dir) == dir && dir != "."
	p.Check(local && !strings.Contains(dir, "?") || d.Path == d.Dataset, at+"path",
		"%s: expected a directory on the claim, as mnist or data/mnist, or in the bucket, as bucket://mnist", d.Path)
	switch {
	case d.Source == "":
	case d.Remote():
		u, err := url.Parse(d.Source)
		p.Check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", at+"source",
			"%s: expected a directory, or a URL of http or https", d.Source)
	default:
		directory, err := in.Stat(s.Path(d.Source))
		p.Check(err == nil && directory, at+"source",
			"%s: expected a directory, or a URL of http or https: there is no directory %s", d.Source, s.Path(d.Source))
	}
	p.Check(d.Command != "" || s.Image != nil && s.Image.Command == "", at+"command",
		"missing: the elasticdl binary, or leave this out for the one on PATH")
	if toBucket {
		if section, b := s.bucket(); b == nil {
			noBucket(at+"path", d.Path, s.Cloud, section, "a directory on the claim, as mnist", p)
		}
		d.CheckKept(s, p)
		return
	}
	d.checkPod(s, p)
}

// CheckKept refuses an expiry of the bucket by which the data, which is copied once, would be
// deleted.
func (d *Data) CheckKept(s *Settings, p *Problems) {
	dir, toBucket := d.InBucket()
	if section, b := s.bucket(); toBucket && b != nil {
		b.checkKept(section, "data.path", d.Path, dir, p)
	}
}

// InBucket returns the directory of the data, and whether it is in the stack's bucket and not on
// its claim.
func (d *Data) InBucket() (dir string, ok bool) { return strings.CutPrefix(d.Path, inBucket) }

// checkPod checks that data can be copied to the claim, by a pod.
func (d *Data) checkPod(s *Settings, p *Problems) {
	if section, claim := s.storage(); claim == "" {
		// a job that mounts it has the problem reported already
		p.Check(s.mounts(section), "data",
			"the stack has no volume that it could be brought to: give %s, or drop this", section)
	}
	p.Check(s.Image != nil || s.Job != nil, "data",
		"the pod that writes it needs an image, and there is neither a section image nor a job: "+
			"give one of the two, or drop this, which deletes no data")
	p.Check(s.Platform.PodSecurity != "restricted", "data",
		"the pod that writes it may be root, which platform.podSecurity: restricted refuses: "+
			"expected baseline there, or drop this")
}

// storage returns the section of the stack's volume, and the name of its claim; "" = the stack has
// no volume.
func (s *Settings) storage() (section, claim string) {
	switch {
	case s.GKE != nil:
		section = storageOf[ClaimGKE]
		if s.GKE.Filestore != nil {
			claim = ClaimGKE
		}
	case s.EKS != nil:
		section = storageOf[ClaimEKS]
		if s.EKS.EFS != nil {
			claim = ClaimEKS
		}
	case s.Existing != nil:
		section = "existing.volume"
		if s.Existing.Volume != nil {
			claim = s.Existing.Volume.Name
		}
	default: // an unknown cloud is reported elsewhere
		return storageOf[ClaimMinikube], ClaimMinikube
	}
	return section, claim
}

// mounts reports whether the job mounts the volume of a section.
func (s *Settings) mounts(section string) bool {
	return s.Job != nil && slices.ContainsFunc(s.Job.Volumes, func(v job.Volume) bool {
		return storageOf[v.ClaimName] == section
	})
}
