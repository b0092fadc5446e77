"""An interval and a next fetch per source from a log, without simulation: for `cron`."""
