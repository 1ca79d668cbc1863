package settings

import "testing"

// A shared namespace may have claims of others, and the stack then needs no size of its own. GPUs
// and PriorityClasses of the cluster are not known here.
func TestExistingClaims(t *testing.T) {
	for name, with := range map[string]map[string]string{
		"a claim of the stack": {"existing.volume.storageClass": "nfs", "existing.volume.accessMode": "ReadWriteOnce"},
		"a claim that is there": {"existing.volume": "{name: datasets}", "platform.shareNamespace": "true",
			"job.volumes": "[{claimName: datasets, mountPath: /data}]"},
		"claims of others": {"existing.volume": "", "data": "", "platform.shareNamespace": "true",
			"job.volumes": "[{claimName: fileserver-claim, mountPath: /data}, {claimName: x, mountPath: /x}]"},
		"no volume":      {"existing.volume": "", "data": "", "job.volumes": ""},
		"an empty cloud": {"existing": "{}", "data": "", "image": "", "job": ""},
		"what it has":    {"job.worker.limit": "{nvidia.com/gpu: 8}", "job.master.priority": "{class: theirs}"},
		"a login":        {"existing.login": "{user: AWS, command: pass}"},
		"another port":   {"existing.registry": "localhost:5000"},
	} {
		config := stack(t, CloudExisting)
		setAll(t, config, with)
		s, err := parsed(t, config)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if v := s.Existing.Volume; v != nil && (v.CapacityGB == 0) != (v.AccessMode == "") {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
