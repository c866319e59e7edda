package cluster

import "context"

// StopAPIServer ends the API server at once, as a crash does. All else runs on.
func (c *Cluster) StopAPIServer(ctx context.Context) error { return c.process(apiServer).stop(ctx, 0) }

// StartAPIServer starts the API server again and waits until it is ready. The scheduler
// starts anew: it ends by itself if a pod that it finds afterwards does not fit what it
// remembers, and nothing here would start it again, as the kubelet does a static pod.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.controlPlane.launch(c.process(apiServer), c.apiServerArguments()...); err != nil {
		return err
	}
	if err := c.waitAPIServer(ctx); err != nil {
		return err
	}
	if err := c.process(scheduler).stop(ctx, 0); err != nil {
		return err
	}
	return c.controlPlane.launch(c.process(scheduler), c.schedulerArguments()...)
}
