package settings

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Places in the stack's bucket become URLs: with the parameters of the client where elasticdl reads
// them, and without in arguments and variables of a program.
func TestBucketPlaces(t *testing.T) {
	for cloud, want := range map[string]struct{ root, query string }{
		CloudGKE: {"gs://elasticdl-test-data-my-project/", ""},
		CloudEKS: {"s3://elasticdl-test-data-" + NoAccount + "/", "?region=us-west-2"},
	} {
		s, err := parsed(t, shipped(t, cloud))
		if err != nil {
			t.Fatal(err)
		}
		j := s.Job
		got := []string{j.TrainingData, j.ValidationData, j.CheckpointDir, j.Output}
		for i, at := range []string{"mnist/train", "mnist/test", "elasticdl-test-mnist/checkpoints",
			"elasticdl-test-mnist/model"} {
			if got[i] != want.root+at+want.query {
				t.Errorf("%s: %s, want %s of %s with %q", cloud, got[i], at, want.root, want.query)
			}
		}
		if j.CheckpointInterval.Duration != job.CheckpointEvery || s.Data.Path != "bucket://mnist" ||
			slices.ContainsFunc(s.Notes, func(note string) bool { return !strings.Contains(note, "eks.nodes: auto") }) {
			t.Errorf("%s: %v, %s, %v", cloud, j.CheckpointInterval, s.Data.Path, s.Notes)
		}
		config := shipped(t, cloud)
		setAll(t, config, map[string]string{"job": "{name: j, type: run, image: 'pytorch:1', " +
			"command: [bucket://code/main.py, --data=bucket://mnist, bucket://out, --url=gs://a/b], envs: " +
			"{DATA: bucket://mnist, LIST: 'a,bucket://b,other-bucket://c'}}", "image": ""})
		if s, err = parsed(t, config); err != nil {
			t.Fatal(err)
		}
		all := fmt.Sprint(s.Job.Command, s.Job.Envs, s.Job.Output, s.Job.CheckpointDir)
		r := want.root
		if said := fmt.Sprintf("[%scode/main.py%s --data=%smnist %sout --url=gs://a/b] map[DATA:%smnist "+
			"LIST:a,%sb,other-bucket://c]", r, want.query, r, r, r, r); all != said {
			t.Errorf("%s:\n got %s\nwant %s", cloud, all, said)
		}
	}
}

// Checkpoints and model of a job are on its volume if it has one, and nowhere if it may only read
// the bucket.
func TestBucketResults(t *testing.T) {
	for name, test := range map[string]struct {
		config      map[string]any
		with        map[string]string
		dir, output string
		data        string
	}{
		"a volume": {stack(t, CloudGKE), nil, "/data/elasticdl-test-mnist/checkpoints", "", "mnist"},
		"data without a path, and a volume": {stack(t, CloudGKE), map[string]string{"data.path": ""},
			"/data/elasticdl-test-mnist/checkpoints", "", "mnist"},
		"data without a path": {shipped(t, CloudGKE), map[string]string{"data.path": ""},
			"gs://elasticdl-test-data-my-project/elasticdl-test-mnist/checkpoints",
			"gs://elasticdl-test-data-my-project/elasticdl-test-mnist/model", "bucket://mnist"},
		"read only": {shipped(t, CloudGKE), map[string]string{"gke.bucket.access": "read"}, "", "", "bucket://mnist"},
		"no checkpoints, another model": {shipped(t, CloudGKE), map[string]string{"job.checkpointSteps": "0",
			"job.output": "gs://mine/model"}, "", "gs://mine/model", "bucket://mnist"},
		"a job that reads a model": {shipped(t, CloudGKE), map[string]string{"job": "{name: j, type: evaluate, " +
			"modelDef: mnist.mnist_mlp.custom_model, validationData: bucket://v, " +
			"checkpointDirForInit: bucket://elasticdl-test-mnist/checkpoints}"}, "", "", "bucket://mnist"},
	} {
		setAll(t, test.config, test.with)
		s, err := parsed(t, test.config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if s.Job.CheckpointDir != test.dir || s.Job.Output != test.output || s.Data.Path != test.data {
			t.Errorf("%s: %q, %q, %q", name, s.Job.CheckpointDir, s.Job.Output, s.Data.Path)
		}
	}
}

// A bucket that is not given has its defaults in an empty section, and its place is moved to the
// account that the cloud's package looks up. No name is longer than clouds accept.
func TestStore(t *testing.T) {
	config := shipped(t, CloudEKS)
	set(t, config, "eks.bucket", "{}")
	s, err := parsed(t, config)
	if err != nil || s.EKS.Bucket.ReadOnly() || s.EKS.Bucket.KeepDeletedDays != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	was := s.Job.TrainingData
	to := s.Store("123456789012").Name
	moved := Located(s.Job, s.Store(NoAccount).Name, to)
	if want := "s3://elasticdl-test-data-123456789012/mnist/train?region=us-west-2"; moved.TrainingData != want ||
		s.Job.TrainingData != was || strings.Contains(fmt.Sprint(*moved), NoAccount) {
		t.Errorf("%s, and before %s", moved.TrainingData, s.Job.TrainingData)
	}
	s.Stack = strings.Repeat("Long_", 20)
	if name := s.Store("123456789012").Name; len(name) > 63 || name == s.Store(NoAccount).Name {
		t.Error(name)
	}
	s.EKS.Bucket.Name = "team-data"
	if at := s.Store("123456789012").URL("m"); at != "s3://team-data/m?region=us-west-2" ||
		at != s.Store(NoAccount).URL("m") {
		t.Errorf("a place in a bucket that exists already is %s", at)
	}
	s.EKS.Bucket = nil
	if s.Store(NoAccount) != nil {
		t.Error("a bucket that is not there")
	}
}

// Checkpoints may expire, and what the job does not have; a class whose objects are paid for longer
// is noted.
func TestExpireDays(t *testing.T) {
	config := shipped(t, CloudGKE)
	setAll(t, config, map[string]string{"gke.bucket.expireDays": "{elasticdl-test-mnist/checkpoints/: 14, " +
		"mnist2: 3, other.logs/: 90}", "gke.bucket.storageClass": "COLDLINE"})
	s, err := parsed(t, config)
	if err != nil {
		t.Fatal(err)
	}
	if all := fmt.Sprint(s.GKE.Bucket.Expiries()); all !=
		"[{elasticdl-test-mnist/checkpoints/ 14} {mnist2 3} {other.logs/ 90}]" {
		t.Error(all)
	}
	if !slices.ContainsFunc(s.Notes, func(note string) bool { return strings.Contains(note, "is paid for 90 days") }) {
		t.Errorf("%q", s.Notes)
	}
	setAll(t, config, map[string]string{"gke.bucket.expireDays": "{other/: 3}", "job.trainingData": "/data/train",
		"job.validationData": "/data/test", "job.envs": "{DATA: \"bucket://mnist/train,bucket://other\"}"})
	if s, err = parsed(t, config); err != nil || !slices.ContainsFunc(s.Notes, func(note string) bool {
		return strings.Contains(note, "gke.bucket.expireDays.other/: 3: objects of job.envs.DATA, ") &&
			strings.HasSuffix(note, ", expire")
	}) {
		t.Errorf("a place within a variable: %v, %+v", err, s)
	}
	set(t, config, "gke.bucket.expireDays", "{}")
	if s, err = parsed(t, config); err != nil || len(s.GKE.Bucket.Expiries()) > 0 {
		t.Errorf("%v, %v", s, err)
	}
}

// bucketMistakes are further mistakes: see mistakes.
var bucketMistakes = []mistake{
	{cloud: "gke", path: "gke.bucket.access", value: "all", want: "all: expected write or read"},
	{cloud: "gke", path: "gke.bucket.keepDeletedDays", value: "3", want: "3: expected 7 to 90, or 0 to keep none"},
	{cloud: "gke", path: "gke.bucket.keepDeletedDays", value: "91", want: "91: expected 7 to 90"},
	{cloud: "gke", path: "gke.bucket.location", value: "us-central1-c",
		want: "us-central1-c: expected a region, as us-central1, or us, eu or asia"},
	{cloud: "gke", path: "gke.bucket.kmsKey", value: "my-key",
		want: "my-key: expected a key, as projects/PROJECT/locations/us-central1/keyRings/RING/cryptoKeys/KEY"},
	{cloud: "gke", path: "gke.bucket.kmsKey", value: "projects/p/locations/us/keyRings/r/cryptoKeys/k",
		want: "expected a key in us-central1, where the bucket is"},
	{cloud: "gke", path: "!gcp:project", value: "my-google-project", at: "gke.bucket",
		want: `its name would be elasticdl-test-data-my-google-project, and Google refuses names with "google"`},
	{cloud: "gke", path: "gke.bucket", at: "job.output", want: "bucket://m: the stack has no bucket: give it one, " +
		"gke.bucket: {}; or expected s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
		also: map[string]string{"job.output": "bucket://m"}},
	{cloud: "gke", path: "gke.bucket", at: "job.envs.DATA", want: "bucket://m: the stack has no bucket",
		also: map[string]string{"job.envs.DATA": "bucket://m"}},
	{cloud: "gke", path: "gke.bucket.access", value: "read", at: "job.checkpointDir",
		want: "gs://elasticdl-test-data-my-project/c: the job writes there, and gke.bucket.access is read",
		also: map[string]string{"job.checkpointDir": "bucket://c"}},
	{cloud: "gke", path: "job.checkpointDir", value: "bucket://mnist/train/c",
		want: "gs://elasticdl-test-data-my-project/mnist/train/c: it is in trainingData",
		also: map[string]string{"job.trainingData": "bucket://mnist/train"}},
	{cloud: "gke", path: "gke.bucket.name", value: "Team_Data", want: "Team_Data: expected the name of a bucket"},
	{cloud: "eks", path: "eks.bucket.name", value: "s3://data", want: "s3://data: expected the name of a bucket"},
	{cloud: "gke", path: "gke.bucket.keepDeletedDays", value: "7",
		also: map[string]string{"gke.bucket.name": "team-data"},
		want: "7: gke.bucket.name names a bucket that exists already, and is not changed: remove this"},
	{cloud: "eks", path: "eks.bucket.keepDeletedDays", value: "7",
		also: map[string]string{"eks.bucket.name": "team-data"},
		want: "7: eks.bucket.name names a bucket that exists already"},
	{cloud: "gke", path: "gke.bucket.location", value: "us", also: map[string]string{"gke.bucket.name": "team-data"},
		want: "us: gke.bucket.name names a bucket that exists already"},
	{cloud: "gke", path: "gke.bucket.kmsKey", also: map[string]string{"gke.bucket.name": "team-data"},
		value: "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
		want:  "cryptoKeys/k: gke.bucket.name names a bucket that exists already"},
	{cloud: "minikube", path: "job.trainingData", value: "bucket://mnist/train",
		want: "bucket://mnist/train: a stack on minikube has no bucket: expected s3://BUCKET/PREFIX"},
	{cloud: "existing", path: "data.path", value: "bucket://mnist",
		want: "bucket://mnist: a stack on existing has no bucket: expected a directory on the claim, as mnist"},
	{cloud: "gke", path: "data.path", value: "bucket://../mnist", want: "bucket://../mnist: expected a directory"},
	{cloud: "gke", path: "data.path", value: "bucket://mnist?region=x", want: "expected a directory"},
	{cloud: "eks", path: "eks.bucket", at: "data.path", want: "bucket://mnist: the stack has no bucket: give it one, " +
		"eks.bucket: {}; or expected a directory on the claim, as mnist",
		also: map[string]string{"data.path": "bucket://mnist"}},
	{cloud: "eks", path: "eks.bucket.kmsKey", value: "alias/mine",
		want: "alias/mine: expected the ARN of a key, as arn:aws:kms:us-west-2:123456789012:key/ID"},
	{cloud: "eks", path: "eks.bucket.kmsKey", value: "arn:aws:kms:eu-west-1:123456789012:key/0-a",
		want: "expected a key in us-west-2, where the bucket is"},
	{cloud: "gke", path: "gke.bucket.storageClass", value: "COLD",
		want: "COLD: expected STANDARD, NEARLINE, COLDLINE or ARCHIVE"},
	{cloud: "gke", path: "gke.bucket.storageClass", value: "NEARLINE",
		also: map[string]string{"gke.bucket.name": "team-data"},
		want: "NEARLINE: gke.bucket.name names a bucket that exists already"},
	{cloud: "eks", path: "eks.bucket.storageClass", value: "STANDARD", want: "unknown field"},
	{cloud: "gke", path: "gke.bucket.expireDays", value: "{logs/: 0}", at: "gke.bucket.expireDays.logs/",
		want: "0: expected 1 to 3650"},
	{cloud: "eks", path: "eks.bucket.expireDays", value: "{/logs: 3}", at: "eks.bucket.expireDays./logs",
		want: "expected the beginning of the names of objects, as elasticdl-mnist/checkpoints/"},
	{cloud: "eks", path: "eks.bucket.expireDays", value: "{bucket://logs: 3}",
		at:   "eks.bucket.expireDays.bucket://logs",
		want: "expected the beginning of the names of objects"},
	{cloud: "gke", path: "gke.bucket.expireDays", value: "{logs/: 3}",
		also: map[string]string{"gke.bucket.name": "team-data"},
		want: "gke.bucket.name names a bucket that exists already, and is not changed: remove this"},
	{cloud: "gke", path: "gke.bucket.expireDays", value: "{mn: 3}", at: "gke.bucket.expireDays.mn",
		also: map[string]string{"job.trainingData": "bucket://mnist/train"},
		want: "3: job.trainingData, gs://elasticdl-test-data-my-project/mnist/train, would expire: give a longer " +
			"prefix, or remove this"},
	{cloud: "eks", path: "eks.bucket.expireDays", value: "{mnist/train/a: 3}",
		at:   "eks.bucket.expireDays.mnist/train/a",
		also: map[string]string{"job.trainingData": "bucket://mnist/train"},
		want: "3: job.trainingData, s3://elasticdl-test-data-000000000000/mnist/train?region=us-west-2, would expire"},
	{cloud: "eks", path: "eks.bucket.location", value: "us-west-2", want: "unknown field"},
}
