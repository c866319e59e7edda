package cluster

import "context"

// StopAPIServer ends the API server at once, as a crash does. All else runs on.
func (c *Cluster) StopAPIServer(ctx context.Context) error { return c.process(apiServer).stop(ctx, 0) }

// StartAPIServer starts the API server again and waits until it is ready. What works
// for it starts anew: the scheduler ends by itself if a pod that it finds afterwards
// does not fit what it remembers, and the controller manager's watches may take minutes
// to be back. Neither is what tests are about.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.controlPlane.launch(c.process(apiServer), c.apiServerArguments()...); err != nil {
		return err
	}
	if err := c.waitAPIServer(ctx); err != nil {
		return err
	}
	for _, program := range []struct {
		name      string
		arguments []string
	}{
		{controllerManager, c.controllerManagerArguments()},
		{scheduler, c.schedulerArguments()},
	} {
		if err := c.process(program.name).stop(ctx, 0); err != nil {
			return err
		}
		if err := c.controlPlane.launch(c.process(program.name), program.arguments...); err != nil {
			return err
		}
	}
	return nil
}
