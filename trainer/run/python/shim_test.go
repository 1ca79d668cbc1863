package python

import (
	"os"
	"os/exec"
	"testing"
)

// shards prints how many records a shard has for a script that says how many minibatches that are,
// and for one that does not. The package that elasticai_api works over is not needed for that.
const shards = `
import sys
from unittest import mock
for name in ("elasticdl", "elasticdl.session", "elasticdl.leases", "elasticdl.rounds"):
    sys.modules[name] = mock.MagicMock()
from elasticai_api.common.data_shard_service import RecordIndexService, build_data_shard_service
print(*(s._fields["records_per_task"] for s in (
    build_data_shard_service(8, dataset_size=100), build_data_shard_service(8, dataset_size=100, num_minibatches_per_shard=3),
    RecordIndexService(batch_size=8, dataset_size=100))))
`

// --num_minibatches_per_task is the default of scripts that give no minibatches for a shard.
func TestMinibatchesOfAShard(t *testing.T) {
	for _, c := range []struct{ env, want string }{{"", "0 24 0\n"},
		{"ELASTICDL_NUM_MINIBATCHES_PER_TASK=5", "40 24 40\n"}} {
		cmd := exec.Command("python3", "-B", "-c", shards)
		cmd.Env = append(os.Environ(), "PYTHONPATH=.")
		if c.env != "" {
			cmd.Env = append(cmd.Env, c.env)
		}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != c.want {
			t.Errorf("with %q: %v, %s, want %s", c.env, err, out, c.want)
		}
	}
}
