package settings

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// cluster returns the settings of a cluster that a program describes with few values.
func cluster(t *testing.T, change func(*Settings)) (*Settings, error) {
	t.Helper()
	of := &Settings{Cloud: CloudEKS, ProtectStorage: true, Platform: Platform{Namespace: "training"},
		EKS: &EKS{Region: "us-west-2", Nodes: NodesAuto, VPC: VPC{Zones: []string{"us-west-2a", "us-west-2b"}},
			Pools:  []EKSPool{{Name: "cheap", EKSGroup: EKSGroup{InstanceTypes: []string{"m6i.xlarge"}, MaxNodes: 3}}},
			Bucket: &Bucket{}, WorkerGroup: &EKSGroup{InstanceTypes: []string{"m6i.large"}, MaxNodes: 2}}}
	change(of)
	return Cluster(Input{Project: "blue", Stack: "dev", Base: "elasticdl-dev-blue", Arch: "amd64",
		Now: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)}, of)
}

// Values that a program leaves out have the defaults of a file, except for true; sections that are
// there have their own defaults; and the settings are those of the same file.
func TestCluster(t *testing.T) {
	s, err := cluster(t, func(*Settings) {})
	if err != nil {
		t.Fatal(err)
	}
	file, err := Parse(Input{Project: "blue", Stack: "dev", Base: "elasticdl-dev-blue", Arch: "amd64",
		Now: s.Now, Config: map[string]string{"aws:region": "us-west-2", "blue:cloud": "eks",
			"blue:platform": `{"namespace": "training"}`, "blue:protectStorage": "true",
			"blue:eks": `{"nodes": "auto", "vpc": {"zones": ["us-west-2a", "us-west-2b"]}, "publicAccess": false,
				"codeBucket": false, "bucket": {}, "pools": [{"name": "cheap", "instanceTypes": ["m6i.xlarge"],
				"maxNodes": 3}], "workerGroup": {"instanceTypes": ["m6i.large"], "maxNodes": 2}}`}})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, file) {
		t.Errorf("the program's\n%+v\nthe file's\n%+v", s.EKS, file.EKS)
	}
	if s.EKS.VPC.CIDR != "10.0.0.0/16" || s.EKS.SystemGroup.MaxNodes != coreNodes || s.EKS.Bucket.Access != "write" ||
		s.EKS.PublicAccess || s.Name(40, "x") != "elasticdl-dev-blue-x" {
		t.Errorf("%+v", s.EKS)
	}
}

// A cluster may be called as its provider.
func TestNamedAsItsProvider(t *testing.T) {
	of := &Settings{Cloud: CloudMinikube, Minikube: &Minikube{Data: "data"}, Platform: Platform{Namespace: "training"}}
	for _, name := range []string{"aws", "gcp"} {
		if _, err := Cluster(Input{Project: name, Stack: "dev", Base: "elasticdl-dev-" + name, Arch: "amd64"},
			of); err != nil {
			t.Error(err)
		}
	}
	_, err := Parse(Input{Project: "aws", Stack: "dev", Arch: "amd64", Config: map[string]string{
		"aws:region": "us-west-2", "aws:cloud": "mars"}})
	if err == nil || strings.Contains(err.Error(), "unknown field") {
		t.Error(err)
	}
}

// Every problem is reported at once, by the path that it has in a file.
func TestProblemsOfAProgram(t *testing.T) {
	_, err := cluster(t, func(s *Settings) {
		s.EKS.Region, s.EKS.Pools[0].MaxNodes, s.EKS.Bucket.Access = "mars", 5000, "all"
	})
	for _, want := range []string{"aws:region: mars: expected a region", "blue:eks.pools[0].maxNodes: 5000",
		"blue:eks.bucket.access: all: expected write or read"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A job of a program gets what follows from the cluster, as a job of a file, and its problems are
// those of the file.
func TestComplete(t *testing.T) {
	s, err := cluster(t, func(*Settings) {})
	if err != nil {
		t.Fatal(err)
	}
	j := job.Default()
	j.Name, j.Image, j.ModelDef = "digits", "r/mnist:1", "mnist.mnist_functional_api.custom_model"
	j.TrainingData = "bucket://mnist/train"
	was := *j
	is, _, err := s.Complete(j, "cheap", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	const bucket = "s3://elasticdl-dev-blue-data-" + NoAccount + "/"
	if is.Namespace != "training" || is.TrainingData != bucket+"mnist/train?region=us-west-2" ||
		is.Output != bucket+"elasticdl-digits/model?region=us-west-2" || is.NumPS != 1 || !is.Shuffle {
		t.Errorf("%+v", is)
	}
	if !reflect.DeepEqual(*j, was) {
		t.Errorf("the program's own job is changed: %+v", j)
	}
	j.Shuffle, j.LogLossSteps, j.KeepCheckpointMax, j.PS.Request = false, 0, 0, nil
	if is, _, err = s.Complete(j, "", "amd64"); err != nil || is.Shuffle || is.LogLossSteps != 0 ||
		is.KeepCheckpointMax != 0 || len(is.PS.Request) != 0 {
		t.Errorf("what is set to zero stays zero: %+v, %v", is, err)
	}
	j.ModelDef, j.NumWorkers = "", -1
	_, _, err = s.Complete(j, "dear", "amd64")
	for _, want := range []string{"blue:job.modelDef: ", "blue:job.numWorkers: -1",
		"blue:job.worker.pool: dear: expected a pool"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A script is a job, too.
func TestCompleteScript(t *testing.T) {
	s, err := cluster(t, func(*Settings) {})
	if err != nil {
		t.Fatal(err)
	}
	j := job.DefaultOf(job.Run)
	j.Name, j.Image, j.Command = "digits", "pytorch:2.9.0", []string{"train.py"}
	is, _, err := s.Complete(j, "", "amd64")
	if err != nil || is.Type != job.Run || is.Strategy != job.AllReduce || is.NumWorkers != 1 ||
		!reflect.DeepEqual(is.Command, j.Command) {
		t.Errorf("%+v, %v", is, err)
	}
}

// Zeros of a program stay where they say something: an empty map, elements of a map, and the value
// behind a pointer.
func TestZerosOfAProgram(t *testing.T) {
	with := func(classes map[string]int32) map[string]int32 {
		s, err := cluster(t, func(s *Settings) {
			s.Platform.PriorityClasses, s.Labels = classes, map[string]string{"team": ""}
			s.EKS.EFS = &EFS{UID: new(0)}
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Labels["team"]; !ok || s.EKS.EFS.UID == nil || *s.EKS.EFS.UID != 0 {
			t.Errorf("labels %v, files %+v", s.Labels, s.EKS.EFS)
		}
		return s.Platform.PriorityClasses
	}
	usual := with(nil)
	if len(usual) == 0 || len(with(map[string]int32{})) != 0 {
		t.Errorf("without classes there are %v, with none %v", usual, with(map[string]int32{}))
	}
	s, err := cluster(t, func(s *Settings) { s.Platform.PriorityClasses = map[string]int32{} })
	if err != nil {
		t.Fatal(err)
	}
	j := job.Default()
	j.Name, j.Image, j.ModelDef, j.TrainingData = "digits", "r/mnist:1", "mnist.mnist_mlp.custom_model", "/data"
	j.Worker.Priority = job.Priority{Class: "high"}
	if _, _, err := s.Complete(j, "", "amd64"); err == nil || !strings.Contains(err.Error(), "high") {
		t.Errorf("a class that the cluster does not have: %v", err)
	}
	if got := with(map[string]int32{"low": 0, "high": 5}); len(got) != 2 || got["high"] != 5 {
		t.Errorf("classes %v", got)
	}
	if _, err := cluster(t, func(s *Settings) { s.EKS.Bucket.ExpireDays = map[string]int{"logs/": 0} }); err == nil ||
		!strings.Contains(err.Error(), "blue:eks.bucket.expireDays.logs/: 0") {
		t.Error(err)
	}
}

// A job of a program comes with its own notes, and without those of its cluster.
func TestNotesOfAJob(t *testing.T) {
	s, err := cluster(t, func(s *Settings) {
		s.EKS.Pools[0].Spot = true // of one type
		s.EKS.Bucket.ExpireDays = map[string]int{"checkpoints/": 3}
	})
	if err != nil || len(s.Notes) == 0 {
		t.Fatal(s.Notes, err)
	}
	j := job.DefaultOf(job.Run)
	j.Name, j.Image, j.Command = "digits", "pytorch:2.9.0", []string{"train.py", "--to=bucket://checkpoints"}
	_, notes, err := s.Complete(j, "", "amd64")
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "eks.bucket.expireDays.checkpoints/: 3: ") {
		t.Errorf("%q, %v", notes, err)
	}
}

// Data that is copied once does not expire.
func TestKeptData(t *testing.T) {
	s, err := cluster(t, func(s *Settings) { s.EKS.Bucket.ExpireDays = map[string]int{"mnist/": 3} })
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"bucket://mnist": "blue:eks.bucket.expireDays.mnist/: 3: data.path, ",
		"bucket://other": "", "mnist": ""} {
		err := s.Verify((&Data{Path: path}).CheckKept)
		if (err != nil) != (want != "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A job whose pool is not known yet is not compared with the nodes of another one.
func TestPoolUnknown(t *testing.T) {
	s, err := cluster(t, func(s *Settings) {
		s.EKS.Pools = append(s.EKS.Pools, EKSPool{Name: "big", EKSGroup: EKSGroup{
			InstanceTypes: []string{"m6i.8xlarge"}, MaxNodes: 3}})
	})
	if err != nil {
		t.Fatal(err)
	}
	j := job.Default()
	j.Name, j.Image, j.ModelDef, j.TrainingData = "digits", "r/mnist:1", "mnist.mnist_mlp.custom_model", "/data"
	j.Worker.Request = job.Resources{"cpu": "16"}
	for pool, fits := range map[string]bool{PoolUnknown: true, "big": true, "cheap": false, "": false} {
		if _, _, err := s.Complete(j, pool, "amd64"); (err == nil) != fits {
			t.Errorf("on pool %q: %v", pool, err)
		}
	}
}
