"""Where does the time of Stable-Baselines3 go: environment, collection or gradient?"""
