package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/folder"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
)

// uploading is a local --workdir that is uploaded for the workers of a job on a cluster.
type uploading struct {
	folder *folder.Folder
	// directory of the archive in the job's pods
	dir  string
	file string // name of the archive in dir
}

// settleUpload reads the --workdir of a command and completes the job with its checksum. It uploads
// nothing yet. The result is nil if there is nothing to upload.
func settleUpload(c *job.Command) (*uploading, error) {
	if c.Upload == "" {
		return nil, nil
	}
	var problems []error
	problem := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("--workdir=%s: "+format, append([]any{c.Upload}, args...)...))
	}
	if c.Job.UploadDir() == "" {
		problem("it is uploaded to a claim; give --volume=\"claim_name=CLAIM,mount_path=/data\", " +
			"which can be written to, or have the code in the image, as elasticdl zoo build does")
	}
	code, err := folder.Read(c.Upload)
	if err != nil {
		problem("%w", err)
		return nil, errors.Join(problems...)
	}
	if script := c.Job.Program.Script(); script != "" && !path.IsAbs(script) && !code.Has(script) {
		problem("script %s is not in it, or left out; expected a path in the directory", script)
	}
	sum := sha256.New()
	if err := code.Archive(sum); err != nil {
		problem("%w", err)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	u := &uploading{folder: code}
	u.dir, u.file = c.Job.SetCode(hex.EncodeToString(sum.Sum(nil)))
	return u, nil
}

// copy returns the copy of the archive, from a directory of this machine, to its claim.
func (u *uploading) copy(j *job.Job, from string) kube.Copy {
	claim, to, _ := j.OnClaim(u.dir) // settleUpload has chosen a claim
	return kube.Copy{
		// the pod needs elasticdl, like the master
		From: from, Claim: claim, To: to, Image: cmp.Or(j.Master.Image, j.Program.AgentImage, j.Image),
		Pull: j.ImagePullPolicy,
		Flag: "--workdir=" + u.folder.Dir, Job: j,
	}
}

// pack writes the archive into a directory, and checks that its checksum is that of the job.
func (u *uploading) pack(j *job.Job, into string) error {
	file, err := os.Create(filepath.Join(into, u.file))
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	if err := errors.Join(u.folder.Archive(io.MultiWriter(file, sum)), file.Close()); err != nil {
		return fmt.Errorf("--workdir=%s: %w", u.folder.Dir, err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != j.Program.CodeSHA256 {
		return fmt.Errorf("--workdir=%s: it changed while it was read; try again", u.folder.Dir)
	}
	return nil
}

// run uploads the code of a job, unless the claim has it already, and prints the result.
func (u *uploading) run(ctx context.Context, client *kube.Client, j *job.Job, out, notes io.Writer) error {
	work, err := os.MkdirTemp("", "elasticdl-upload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := u.pack(j, work); err != nil {
		return err
	}
	show := &steps{out: notes}
	defer show.close()
	what := u.copy(j, work)
	existed, err := client.CopyToClaim(ctx, what, func(p kube.CopyProgress) {
		show.show(stepProgress{Step: strings.ReplaceAll(p.Step, work, u.folder.Dir), Bytes: true,
			Done: p.Done, Total: p.Total})
	})
	if err != nil {
		return err
	}
	show.close()
	verb := "uploaded to"
	if existed {
		verb = "already exists:"
	}
	_, err = fmt.Fprintf(out, "code %s (%s, %.1f MB) %s claim:%s/%s\n", u.folder.Dir,
		count(int64(u.folder.Files()), "file"), float64(u.folder.Size)/1e6, verb, what.Claim, what.To)
	return err
}
