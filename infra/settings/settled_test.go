package settings

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Valid settings, and the values that follow from them.
func TestSettled(t *testing.T) {
	for _, test := range []struct {
		name, cloud string
		with        map[string]string
		want        func(s *Settings) bool
	}{
		{"defaults of a section", "gke", map[string]string{"gke.maintenance": "", "gke.ranges": "",
			"gke.systemPool": "", "gke.privateNodes": ""}, func(s *Settings) bool {
			d := defaults(CloudGKE, "amd64").GKE
			return s.GKE.Ranges == d.Ranges && s.GKE.SystemPool.MachineType == "e2-standard-4" &&
				s.GKE.PrivateNodes && s.GKE.SystemPool.DiskGB == 100 && s.GKE.Maintenance == nil
		}},
		{"a system pool for all zones of a region", "gke",
			merged(inRegion, map[string]string{"gke.systemPool": "", "gke.systemPool.maxNodes": ""}),
			func(s *Settings) bool {
				return s.GKE.SystemPool.MinNodes == 1 && s.GKE.SystemPool.MaxNodes == 3
			}},
		{"a system pool of a zone", "gke", map[string]string{"gke.systemPool": ""}, func(s *Settings) bool {
			return s.GKE.SystemPool.MaxNodes == 2
		}},
		{"from none, in fewer nodes than zones", "gke",
			merged(inRegion, map[string]string{"gke.systemPool.maxNodes": "",
				"gke.workerPool.maxNodes": "2"}), func(s *Settings) bool {
				return s.GKE.WorkerPool.MaxNodes == 2
			}},
		{"weekends, but not these", "gke", map[string]string{"gke.maintenance": window(),
			"gke.maintenance.exclusions": exclusion("scope: NO_UPGRADES, end: '2027-03-20T00:00:00Z'",
				"name: b")}, func(s *Settings) bool {
			return s.GKE.Maintenance.Window.Recurrence == "FREQ=WEEKLY;BYDAY=SA,SU" &&
				s.GKE.Maintenance.Exclusions[0].Scope == "NO_UPGRADES" && len(s.GKE.Maintenance.Exclusions) == 2
		}},
		{"what is false stays so", "gke", map[string]string{"gke.privateNodes": "false",
			"protectStorage": "false"}, func(s *Settings) bool {
			return !s.GKE.PrivateNodes && !s.ProtectStorage
		}},
		{"optional sections", "gke", map[string]string{"gke.workerPool": "",
			"job.worker.request.cpu": "500m"}, func(s *Settings) bool {
			return s.GKE.GPUPool == nil && s.GKE.WorkerPool == nil
		}},
		{"maps are whole", "gke", map[string]string{"platform.priorityClasses": "{high: 5, low: 4, " +
			"idle: -1}"}, func(s *Settings) bool {
			return reflect.DeepEqual(s.Platform.PriorityClasses, map[string]int32{"high": 5, "low": 4, "idle": -1})
		}},
		{"labels in addition to the stack's own", "eks",
			map[string]string{"labels": "{team: ml}"},
			func(s *Settings) bool {
				return reflect.DeepEqual(s.Labels, map[string]string{"team": "ml", LabelStack: "elasticdl-test"})
			}},
		{"the stack's own label alone", "gke", map[string]string{"labels": ""}, func(s *Settings) bool {
			return len(s.Labels) == 1
		}},
		{"a worker of a program, as of torchrun", "gke",
			map[string]string{"job": "{name: j, type: run, image: 'pytorch:1', command: [main.py]}"},
			func(s *Settings) bool {
				return s.Job.NumWorkers == 1 && s.Job.Program.Processes == "1" && s.Job.NumMinibatchesPerTask == 0
			}},
		{"workers of a program, as many as it needs", "gke",
			map[string]string{"job": "{name: j, type: run, image: 'pytorch:1', command: [main.py], " +
				"minWorkers: 3}"}, func(s *Settings) bool {
				return s.Job.NumWorkers == 3
			}},
		{"workers of a model", "gke",
			map[string]string{"job.numWorkers": "", "job.numMinibatchesPerTask": ""}, func(s *Settings) bool {
				return s.Job.NumWorkers == 2 && s.Job.NumMinibatchesPerTask == 8 && s.Job.Command == nil
			}},
		{"a zone for Filestore", "gke", nil, func(s *Settings) bool {
			return s.GKE.Filestore.Location == "us-central1-c"
		}},
		{"the first of several", "gke", map[string]string{"gke.location": "us-central1",
			"gke.nodeZones": "[us-central1-f, us-central1-a]"}, func(s *Settings) bool {
			return s.GKE.Filestore.Location == "us-central1-f"
		}},
		{"a region for Filestore", "gke",
			map[string]string{"gke.filestore": "{tier: REGIONAL, range: 10.1.0.0/24}"}, func(s *Settings) bool {
				return s.GKE.Filestore.Location == "us-central1" && s.GKE.Filestore.CapacityGB == 1024
			}},
		{"cards with machines", "gke",
			merged(withGPUs, map[string]string{"gke.gpuPool.machineType": "g2-standard-4",
				"gke.gpuPool.accelerator": "nvidia-l4"}), func(s *Settings) bool {
				return s.GKE.GPUPool.GPUDriver == "DEFAULT"
			}},
		{"a VPC that is there", "eks", map[string]string{"eks.vpc": vpcThere}, func(s *Settings) bool {
			return s.EKS.VPC.CIDR == "" && len(s.EKS.VPC.PrivateSubnets) == 2
		}},
		{"a private API", "eks", map[string]string{"eks.publicAccess": "false",
			"eks.authorizedNetworks": ""}, func(s *Settings) bool {
			return !s.EKS.PublicAccess
		}},
		{"networks as wide as may be", "gke", map[string]string{"gke.authorizedNetworks": "[{cidr: 8.0.0.0/8}]"},
			func(s *Settings) bool { return len(s.GKE.AuthorizedNetworks) == 1 }},
		{"several types for spot", "eks",
			map[string]string{"eks.gpuGroup": "{instanceTypes: [g4dn.xlarge, g5.xlarge, g6.xlarge], " +
				"gpus: 1, maxNodes: 2, spot: true}"}, func(s *Settings) bool {
				return s.EKS.GPUGroup.Spot
			}},
		{"the owner of files", "eks", map[string]string{"eks.efs": "{uid: 65532}"}, func(s *Settings) bool {
			return *s.EKS.EFS.UID == 65532 && s.EKS.EFS.ThroughputMode == "elastic"
		}},
		{"a profile, an absolute path", "minikube", map[string]string{"minikube.data": "data"}, func(s *Settings) bool {
			return s.Minikube.Profile == "elasticdl-test" && s.Minikube.Data == "/project/data"
		}},
		{"a path that is absolute", "minikube", map[string]string{"minikube.data": "/mnt/data"},
			func(s *Settings) bool {
				return s.Minikube.Data == "/mnt/data"
			}},
		{"minikube's own user", "minikube", map[string]string{"minikube.profile": "minikube",
			"minikube.adopt": "true", "platform.networkPolicy": "true",
			"job.worker.priority.class": "theirs"}, func(s *Settings) bool {
			return s.Minikube.Adopt
		}},
		{"GPUs of this machine", "minikube", map[string]string{"minikube.gpus": "all",
			"minikube.driver": "docker", "job.worker": "{request: {nvidia.com/gpu: 1}}"}, func(s *Settings) bool {
			return s.Minikube.GPUs == "all"
		}},
		{"GPUs of minikube's own user", "minikube", map[string]string{"minikube.profile": "minikube",
			"minikube.adopt": "true", "job.worker": "{request: {nvidia.com/gpu: 1}}"}, func(s *Settings) bool {
			return s.Minikube.GPUs == "" && s.Job.Worker.Request["nvidia.com/gpu"] == "1"
		}},
		{"numbers for texts", "gke",
			map[string]string{"platform.quota": "{pods: 50, requests.cpu: 16, " +
				"requests.nvidia.com/gpu: 4, count/jobs.batch: 10}"}, func(s *Settings) bool {
				return s.Platform.Quota["pods"] == "50"
			}},
		{"an existing image", "gke",
			map[string]string{"image": "", "job.image": "registry.example/elasticdl:mnist"}, func(s *Settings) bool {
				return s.Image == nil
			}},
		{"data of its own name, by the image's command", "gke",
			map[string]string{"data": "{dataset: mnist}", "image.command": "build/elasticdl"}, func(s *Settings) bool {
				return *s.Data == Data{Dataset: "mnist", Path: "mnist", Command: "build/elasticdl"}
			}},
		{"data from elsewhere", "eks",
			map[string]string{"data": "{dataset: cifar10, path: a/b, source: " +
				"'https://example.com/c', command: elasticdl}", "image.command": "build/elasticdl"},
			func(s *Settings) bool {
				return *s.Data == Data{Dataset: "cifar10", Path: "a/b", Source: "https://example.com/c",
					Command: "elasticdl"} && s.Data.Remote()
			}},
		{"no data", "gke", map[string]string{"data": ""}, func(s *Settings) bool { return s.Data == nil }},
		{"an image and no job", "gke", map[string]string{"job": "", "image.name": "mnist"}, func(s *Settings) bool {
			return s.Job == nil && s.Image.Name == "mnist"
		}},
		{"the namespace is the stack's", "gke", map[string]string{"platform.namespace": "training"},
			func(s *Settings) bool {
				return s.Job.Namespace == "training"
			}},
		{"a ring has no servers", "gke", map[string]string{"job.strategy": "AllreduceStrategy",
			"job.numPS": ""}, func(s *Settings) bool {
			return s.Job.NumPS == 0
		}},
		{"no servers are a ring", "gke", map[string]string{"job.strategy": "", "job.numPS": "0"},
			func(s *Settings) bool {
				return s.Job.Strategy == job.AllReduce
			}},
		{"defaults below limits", "gke", map[string]string{"job.worker": "{limit: {memory: 512Mi}}"},
			func(s *Settings) bool {
				return s.Job.Worker.Request["memory"] == "512Mi"
			}},
		{"a host's directory", "minikube",
			map[string]string{"job.volumes": "[{hostPath: /data, mountPath: /data}]"}, func(s *Settings) bool {
				return s.Platform.PodSecurity == ""
			}},
		{"seconds, and none", "gke", map[string]string{"job.taskTimeout": "90", "job.logLossSteps": "0",
			"job.syncVersionTolerance": "0"}, func(s *Settings) bool {
			return s.Job.TaskTimeout.Duration == 90*time.Second && s.Job.LogLossSteps == 0 &&
				*s.Job.SyncVersionTolerance == 0
		}},
		{"a program, by an existing image", "gke", toRun, func(s *Settings) bool {
			j := s.Job
			return j.Runs() && slices.Equal(j.Command, []string{"python3", "main.py"}) &&
				j.Processes == "1" && j.Grace.Duration == time.Second && j.CheckpointDir == "" &&
				j.NumPS == 0 && j.Elastic() && *BuiltImage(j) == "" && j.Image != ""
		}},
		{"a program on GPUs", "eks",
			merged(toRun, map[string]string{"eks.gpuGroup": gpuGroup, "job.gpus": "1",
				"job.processes": "gpu", "image": "",
				"job.agentImage": "registry.example/elasticdl:v1"}), func(s *Settings) bool {
				return s.Job.Worker.Request["nvidia.com/gpu"] == "1" && s.Job.Worker.Limit == nil
			}},
		{"no program", "gke", nil, func(s *Settings) bool { return reflect.DeepEqual(s.Job.Program, job.Program{}) }},
		{"an evaluation", "gke", map[string]string{"job": "{name: test, type: evaluate, modelDef: " +
			"mnist.mnist_functional_api.custom_model, validationData: /data/t, " +
			"checkpointDirForInit: 'gs://b/c'}"}, func(s *Settings) bool {
			return s.Job.Strategy == "" && s.Job.CheckpointDir == ""
		}},
		{"a queue, with priorities of pods", "gke", map[string]string{"job.queue": "team-a",
			"job.queueTimeout": "90s"}, func(s *Settings) bool {
			return s.Job.QueuePriorities == job.PrioritiesPod && s.Job.AdmissionTime() == 90*time.Second
		}},
		{"a queue, with priorities of workloads", "gke", map[string]string{"job.queue": "team-a",
			"platform.queuePriorities": "true"}, func(s *Settings) bool {
			return s.Job.QueuePriorities == job.PrioritiesWorkload
		}},
		{"a queue, with the priorities that the job gives", "gke", map[string]string{"job.queue": "team-a",
			"job.queuePriorities": "none", "platform.queuePriorities": "true"}, func(s *Settings) bool {
			return s.Job.QueuePriorities == job.PrioritiesNone
		}},
		{"priorities, and no queue", "gke", map[string]string{"platform.queuePriorities": "true"},
			func(s *Settings) bool { return s.Job.QueuePriorities == "" }},
		{"nothing for a section", "gke", map[string]string{"gke.maintenance": "null",
			"platform": "null", "policy": "''"}, func(s *Settings) bool {
			return s.GKE.Maintenance == nil && s.Platform.Namespace == "elasticdl"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := stack(t, test.cloud)
			setAll(t, config, test.with)
			in := input(t, "/project", config)
			if image := in.Config["elasticdl:image"]; image != "" {
				// this path exists
				in.Config["elasticdl:image"] = strings.Replace(image, "cmd/elasticdl", "/", 1)
			}
			s, err := Parse(in)
			if err != nil {
				t.Fatal(err)
			}
			if !test.want(s) {
				text, _ := json.Marshal(s)
				t.Errorf("%s", text)
			}
		})
	}
}

// Facts about nodes are for those who create them, and no notes of each run.
func TestNodeNotes(t *testing.T) {
	for _, test := range []struct {
		cloud string
		with  map[string]string
		want  string
	}{
		{"gke", inRegion, "gke.location: us-central1 is a region: nodes are spread over its zones, 1 to 6 of them"},
		{"gke", nil, ""},
		{"gke", map[string]string{"gke.nodeAccount": "nodes-of-all@my-project.iam.gserviceaccount.com"}, ""},
		{"gke", map[string]string{"gke.nodeAccount": "nodes-of-all@my-project.iam.gserviceaccount.com",
			"gke.registry": "team"}, "gke.nodeAccount: it has to be able to read gke.registry"},
		{"eks", auto, "eks.nodes: auto: Amazon replaces each node of Auto Mode within 21 days"},
		{"eks", map[string]string{"eks.nodes": "karpenter", "eks.workerGroup": ""}, ""},
		{"eks", groups, ""},
	} {
		config := stack(t, test.cloud)
		setAll(t, config, test.with)
		s, err := parsed(t, config)
		if err != nil {
			t.Fatal(err)
		}
		var notes []string
		if s.GKE != nil {
			notes = s.GKE.NodeNotes()
		} else {
			notes = s.EKS.NodeNotes()
		}
		text := strings.Join(notes, "\n")
		if !strings.HasPrefix(text, test.want) || (text != "") != (test.want != "") || len(s.Notes) > 0 {
			t.Errorf("%s with %v: %q, and %q in each run", test.cloud, test.with, text, s.Notes)
		}
	}
}

// Notes about valid settings are reported, by path.
func TestNotes(t *testing.T) {
	for _, test := range []struct {
		cloud string
		with  map[string]string
		want  string
	}{
		{"gke", map[string]string{"gke.gpuPool": "{machineType: a5-highgpu-8g, accelerator: nvidia-b300, gpus: 8, " +
			"maxNodes: 1}"}, "elasticdl:gke.gpuPool.accelerator: nvidia-b300 is not known here: whether it goes " +
			"with a5-highgpu-8g is not checked"},
		{"gke", map[string]string{"gke.maintenance.exclusions": exclusion(
			"start: '2026-11-01T00:00:00Z', end: '2026-11-20T00:00:00Z'")},
			"elasticdl:gke.maintenance.exclusions[0]: a ended on 2026-11-20"},
		{"eks", map[string]string{"eks.publicAccess": "false", "eks.authorizedNetworks": ""},
			"elasticdl:eks.publicAccess: false: `pulumi up` has to run within the VPC"},
		{"eks", map[string]string{"eks.gpuGroup": "{instanceTypes: [p3.2xlarge], gpus: 1, maxNodes: " +
			"2, desiredNodes: 2}"}, "elasticdl:eks.gpuGroup.instanceTypes[0]: p3.2xlarge is an old type"},
		{"eks", map[string]string{
			"eks.gpuGroup": "{instanceTypes: [g4dn.xlarge], gpus: 1, maxNodes: 3}"},
			"elasticdl:eks.gpuGroup.desiredNodes: 0: the stack has no autoscaler"},
		{"eks", map[string]string{"eks.gpuGroup": "{instanceTypes: [g4dn.xlarge], gpus: 1, " +
			"maxNodes: 3, desiredNodes: 1, spot: true}"}, "elasticdl:eks.gpuGroup.spot: true with one type only"},
		{"minikube", map[string]string{"data.source": "https://me:hunter2@mirror.example/mnist"},
			"elasticdl:data.source looks like a secret (a URL with a password): it is stored in plain text"},
		{"minikube", map[string]string{"minikube.data": "no/data"}, "elasticdl:minikube.data: no directory ../no/data"},
	} {
		config := stack(t, test.cloud)
		setAll(t, config, test.with)
		s, err := parsed(t, config)
		if err != nil {
			t.Errorf("%v: %v", test.with, err)
			continue
		}
		if !slices.ContainsFunc(s.Notes, func(note string) bool { return strings.HasPrefix(note, test.want) }) {
			t.Errorf("%v: no %s in %q", test.with, test.want, s.Notes)
		}
	}
}

// Problems of other checks are reported in the order of the file, among those of this package.
func TestOthersProblems(t *testing.T) {
	config := stack(t, CloudGKE)
	set(t, config, "gke.location", "Iowa")
	set(t, config, "job.numWorkers", "0")
	_, err := Parse(input(t, "..", config), func(_ *Settings, p *Problems) {
		p.Check(false, "", "nobody knows where")
	}, func(_ *Settings, p *Problems) {
		p.Check(false, "job.numWorkers", "it was reported")
		p.Check(false, "platform.podSecurity", "baseline: refused")
		p.Check(true, "platform.quota", "all is well")
	})
	var paths []string
	for line := range strings.Lines(err.Error()) {
		path, _, _ := strings.Cut(line, ": ")
		paths = append(paths, strings.TrimSpace(path))
	}
	if want := []string{"elasticdl", "elasticdl:gke.location", "elasticdl:platform.podSecurity",
		"elasticdl:job.numWorkers"}; !slices.Equal(paths, want) {
		t.Errorf("%q\n%v", paths, err)
	}
}

// FuzzSettings checks that no configuration panics, every problem is a line with a path, and valid
// settings survive JSON.
func FuzzSettings(f *testing.F) {
	for _, cloud := range clouds {
		text, err := json.Marshal(stack(f, cloud))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, m := range slices.Concat(mistakes, bucketMistakes, partMistakes) {
		config := stack(f, m.cloud)
		set(f, config, m.path, m.value)
		text, err := json.Marshal(config)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var config map[string]any
		if yaml.Unmarshal(text, &config) != nil {
			return
		}
		s, err := parsed(t, config)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.Contains(line, ": ") {
					t.Errorf("no path: %q", line)
				}
			}
			return
		}
		once, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var again Settings
		if err := json.Unmarshal(once, &again); err != nil {
			t.Fatal(err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(once) {
			t.Errorf("%v\n%s\n%s", err, once, twice)
		}
	})
}
