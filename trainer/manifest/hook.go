package manifest

import (
	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

func checkHooks(*job.Job) error { return nil }

func applyToPod(*job.Job, pod.Role, *core.PodTemplateSpec) error { return nil }

func applyToService(*job.Job, *core.Service) error { return nil }
