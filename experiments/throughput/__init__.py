"""How fast is the world, against Gymnasium's own environments and the machine's limits?"""
