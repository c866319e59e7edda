package cluster

import "context"

// StopAPIServer ends the API server at once, as a crash does. All else runs on.
func (c *Cluster) StopAPIServer(ctx context.Context) error { return c.process(apiServer).stop(ctx, 0) }

// StartAPIServer starts the API server again and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.controlPlane.launch(c.process(apiServer), c.apiServerArguments()...); err != nil {
		return err
	}
	return c.waitAPIServer(ctx)
}
