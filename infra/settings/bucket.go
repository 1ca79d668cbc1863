package settings

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// inBucket begins a place in the stack's bucket: "bucket://mnist/train".
const inBucket = "bucket://"

// Bucket is a bucket of the stack for data, checkpoints and models.
type Bucket struct {
	// of a bucket that exists already; "" = the stack makes one
	Name string `json:"name,omitempty"`
	// what the job may do in it: write, or read
	Access string `json:"access,omitempty"`
	// days for which deleted and overwritten objects can be restored: 7 to 90; 0 = none
	KeepDeletedDays int `json:"keepDeletedDays"`
	// days after which objects are deleted whose names begin with a prefix:
	// "elasticdl-mnist/checkpoints/"; nil = none
	ExpireDays map[string]int `json:"expireDays,omitempty"`
	// key of the cloud that encrypts the objects; "" = that of the stack, or the cloud's own
	KMSKey string `json:"kmsKey,omitempty"`
}

// GKEBucket is a bucket of Google.
type GKEBucket struct {
	Bucket
	// a region, or us, eu or asia; "" = the region of the cluster
	Location string `json:"location,omitempty"`
	// class of new objects: STANDARD, NEARLINE, COLDLINE or ARCHIVE; "" = STANDARD
	StorageClass string `json:"storageClass,omitempty"`
}

// classes has the storage classes of Google with the days for which each object is paid for at
// least.
var classes = map[string]int{"STANDARD": 0, "NEARLINE": 30, "COLDLINE": 90, "ARCHIVE": 365}

// ReadOnly reports whether the job may only read.
func (b *Bucket) ReadOnly() bool { return b.Access == accessRead }

const (
	accessWrite = "write"
	accessRead  = "read"
)

// NoAccount stands for the number of the Amazon account in names of buckets: the settings do not
// know it. The package of the cloud looks it up: see [Located].
const NoAccount = "000000000000"

// Store is the place of a bucket in URLs.
type Store struct {
	// gs or s3
	Scheme string
	Name   string
	// parameters of the client: "region=us-west-2"; "" = none
	Query string
}

// URL returns the URL of a place in the bucket: "s3://NAME/mnist?region=us-west-2".
func (b *Store) URL(path string) string {
	url := b.plain(path)
	if b.Query != "" {
		url += "?" + b.Query
	}
	return url
}

// plain returns a URL without parameters, for clients of others.
func (b *Store) plain(path string) string { return b.Scheme + "://" + b.Name + "/" + path }

// Store returns the place of the stack's bucket; nil = it has none. Account is the number of the
// Amazon account, or [NoAccount].
func (s *Settings) Store(account string) *Store {
	switch {
	case s.GKE != nil && s.GKE.Bucket != nil:
		return &Store{Scheme: "gs", Name: cmp.Or(s.GKE.Bucket.Name, s.Name(maxBucket, "data", s.GKE.Project))}
	case s.EKS != nil && s.EKS.Bucket != nil:
		return &Store{Scheme: "s3", Name: cmp.Or(s.EKS.Bucket.Name, s.Name(maxBucket, "data", account)),
			Query: "region=" + s.EKS.Region}
	}
	return nil
}

// maxBucket is the greatest length of the name of a bucket. Names are global, hence the project or
// the account in them.
const maxBucket = 63

// Located returns a job whose places in the bucket of one name are in the bucket of another.
func Located(j *job.Job, from, to string) *job.Job {
	if from == to {
		return j
	}
	moved := *j
	eachPlace(&moved, func(_, at string, _ bool) string {
		return strings.ReplaceAll(at, "://"+from+"/", "://"+to+"/")
	})
	return &moved
}

// settleBucket replaces the places in the stack's bucket by their URLs. The code of a program,
// which elasticdl fetches, and the directories of a job have the parameters of the client; other
// arguments and variables of a program, which it may read by any library, do not.
func (s *Settings) settleBucket() {
	store := s.Store(NoAccount)
	if store == nil {
		return
	}
	eachPlace(s.Job, func(_, at string, own bool) string {
		path, ok := strings.CutPrefix(at, inBucket)
		switch {
		case ok && own:
			return store.URL(path)
		case own:
			return at
		}
		return placed.ReplaceAllString(at, "${1}"+store.plain(""))
	})
}

// placed matches the beginnings of places in an argument: "bucket://main.py" and
// "--data=bucket://mnist,bucket://other", but not another scheme.
var placed = regexp.MustCompile(`(^|[^-+.0-9A-Za-z])` + inBucket)

// settleBucketDirs keeps the checkpoints and the model of a job without a volume in the bucket.
func (s *Settings) settleBucketDirs(given func(flag string) bool) (checkpoints string) {
	store := s.Store(NoAccount)
	j := s.Job
	if _, b := s.bucket(); store == nil || b.ReadOnly() || !j.Trains() || j.ClaimDir() != "" {
		return j.ClaimDir()
	}
	if !given("output") {
		j.Output = store.URL("elasticdl-" + j.Name + "/model")
	}
	return store.URL("elasticdl-" + j.Name + "/checkpoints")
}

// eachPlace replaces every field of a job that may name a place in a bucket by what f returns for
// its path and value. Own reports whether elasticdl reads the whole value as a place.
func eachPlace(j *job.Job, f func(path, at string, own bool) string) {
	for _, field := range []struct {
		path string
		of   *string
	}{
		{"trainingData", &j.TrainingData}, {"validationData", &j.ValidationData},
		{"predictionData", &j.PredictionData}, {"predictionOutputs", &j.PredictionOutputs},
		{"output", &j.Output}, {"checkpointDir", &j.CheckpointDir},
		{"checkpointDirForInit", &j.CheckpointDirForInit}, {"tensorboardLogDir", &j.TensorBoardLogDir},
	} {
		*field.of = f("job."+field.path, *field.of, true)
	}
	j.Command = slices.Clone(j.Command)
	for i := range j.Command {
		j.Command[i] = f("job.command", j.Command[i], i == 0)
	}
	j.Envs = maps.Clone(j.Envs)
	for name, value := range j.Envs {
		j.Envs[name] = f(Join("job.envs", name), value, false)
	}
}

// bucket returns the section of the stack's bucket, and the bucket; nil = it has none.
func (s *Settings) bucket() (section string, b *Bucket) {
	switch {
	case s.GKE != nil:
		if section = "gke.bucket"; s.GKE.Bucket != nil {
			b = &s.GKE.Bucket.Bucket
		}
	case s.EKS != nil:
		section, b = "eks.bucket", s.EKS.Bucket
	}
	return section, b
}

// checkBucketJob refuses places in a bucket that the stack does not have, and results of a job that
// may only read.
func (s *Settings) checkBucketJob(p *Problems) {
	section, b := s.bucket()
	results := []string{"job.output", "job.checkpointDir", "job.predictionOutputs", "job.tensorboardLogDir"}
	store := s.Store(NoAccount)
	is := *s.Job
	eachPlace(&is, func(path, at string, _ bool) string {
		switch {
		case b == nil && placed.MatchString(at):
			noBucket(path, at, s.Cloud, section, "s3://BUCKET/PREFIX or gs://BUCKET/PREFIX", p)
		case b != nil && b.ReadOnly() && slices.Contains(results, path):
			p.Check(!strings.HasPrefix(at, store.plain("")), path,
				"%s: the job writes there, and %s.access is read: expected write there, or another place", at, section)
		}
		if b != nil {
			s.checkExpiryJob(b, section, store, path, at, p)
		}
		return at
	})
}

// noBucket reports a place in the bucket of a stack that has none.
func noBucket(path, at, cloud, section, expected string, p *Problems) {
	if section == "" {
		p.Check(false, path, "%s: a stack on %s has no bucket: expected %s", at, cloud, expected)
		return
	}
	p.Check(false, path, "%s: the stack has no bucket: give it one, %s: {}; or expected %s", at, section, expected)
}

// ofItsOwner says why a setting has no effect on a bucket that exists already.
const ofItsOwner = "%s.name names a bucket that exists already, and is not changed: remove this"

var (
	isBucketName = regexp.MustCompile(`^[a-z0-9][-a-z0-9._]{1,61}[a-z0-9]$`)
	multiRegions = []string{"us", "eu", "asia"}
)

// Limits of the time for which deleted objects are kept: those of Google.
const (
	leastKept = 7
	mostKept  = 90
)

func (b *Bucket) check(at string, p *Problems) {
	p.oneOf(at+".access", b.Access, accessWrite, accessRead)
	p.Check(b.KeepDeletedDays == 0 || b.KeepDeletedDays >= leastKept && b.KeepDeletedDays <= mostKept,
		at+".keepDeletedDays", "%d: expected %d to %d, or 0 to keep none", b.KeepDeletedDays, leastKept, mostKept)
	b.checkExpiry(at, p)
	if b.Name == "" {
		return
	}
	p.Check(isBucketName.MatchString(b.Name), at+".name", "%s: expected the name of a bucket, as my-team-data", b.Name)
	p.Check(b.KeepDeletedDays == 0, at+".keepDeletedDays", "%d: "+ofItsOwner, b.KeepDeletedDays, at)
	p.Check(len(b.ExpireDays) == 0, at+".expireDays", ofItsOwner, at)
}

func (b *GKEBucket) check(s *Settings, p *Problems) {
	const at = "gke.bucket"
	b.Bucket.check(at, p)
	if b.Name != "" {
		p.Check(b.Location == "", at+".location", "%s: "+ofItsOwner, b.Location, at)
		p.Check(b.KMSKey == "", at+".kmsKey", "%s: "+ofItsOwner, b.KMSKey, at)
		p.Check(b.StorageClass == "", at+".storageClass", "%s: "+ofItsOwner, b.StorageClass, at)
		return
	}
	of, _ := Region(s.GKE.Location) // which has its own check
	p.Check(b.Location == of || isGoogleRegion.MatchString(b.Location) || slices.Contains(multiRegions, b.Location),
		at+".location", "%s: expected a region, as us-central1, or %s", b.Location, list(multiRegions))
	if b.StorageClass != "" {
		p.oneOf(at+".storageClass", b.StorageClass, "STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE")
	}
	if days := classes[b.StorageClass]; days > 0 && !b.ReadOnly() {
		s.note("gke.bucket.storageClass: %s: each object is paid for %d days, also a checkpoint that the job deletes "+
			"after a minute, and every read costs: this is for data that is seldom read", b.StorageClass, days)
	}
	checkGoogleKey(at+".kmsKey", b.KMSKey, b.Location, "where the bucket is", p)
	p.Check(b.KMSKey != "" || s.GKE.KMSKey == "" || b.Location == of, at+".kmsKey", "missing: gke.kmsKey is a key in "+
		"%s, and the bucket is in %s: give a key in %[2]s for it", of, b.Location)
	name := s.Store(NoAccount).Name
	p.Check(!strings.Contains(name, "google"), at, "its name would be %s, and Google refuses names with "+
		"\"google\": give the stack another name", name)
}

func (b *Bucket) checkAmazon(region string, p *Problems) {
	const at = "eks.bucket"
	b.check(at, p)
	checkAmazonKey(at+".kmsKey", b.KMSKey, region, "where the bucket is", p)
}
